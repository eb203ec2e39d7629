// Runs CUDA C++ on the host. A file of kernels that is included after this header is compiled as C++, and
// HostLauncher runs its kernels block by block. The threads of a block are fibers, which switch at barriers and
// shuffles. The header has what server/nn/gpu/kernels.cu needs. It has no atomics, no dynamic shared memory and no
// other warp primitives.
// Threads: one at a time.
#pragma once

#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/operators.h"

namespace cuda_on_host {

struct Index {
  unsigned x = 0, y = 0;
};
inline Index block_index, thread_index;

// The order in which the threads of a block run. A kernel that lacks a barrier may give right results in one order
// and wrong ones in the other.
enum class Order { kForward, kReverse };

// Runs the threads of one block in passes. In each pass, every thread runs until it yields or ends. Lanes of a warp
// that reach a shuffle together write their values in one pass and read in the next.
class Block {
 public:
  Block(permafrost::KernelLauncher::Extent threads, Order order)
      : threads_(threads),
        order_(order),
        fibers_(size_t{threads.x} * threads.y),
        given_(fibers_.size()),
        given_in_(fibers_.size()) {}

  void Run(const std::function<void()>& kernel) {
    kernel_ = &kernel;
    running_ = this;
    alive_ = fibers_.size();
    for (Fiber& fiber : fibers_) Begin(fiber);
    while (alive_ > 0) {
      ++pass_;
      for (size_t n = 0; n < fibers_.size(); ++n) {
        const size_t t = order_ == Order::kForward ? n : fibers_.size() - 1 - n;
        if (fibers_[t].ended) continue;
        current_ = t;
        thread_index = {static_cast<unsigned>(t % threads_.x), static_cast<unsigned>(t / threads_.x)};
        swapcontext(&home_, &fibers_[t].context);
      }
      // All threads that have not ended wait at the barrier. They go on in the next pass.
      if (arrived_ != alive_) continue;
      arrived_ = 0;
      ++barriers_;
    }
  }
  static void Barrier() {
    Block& block = *running_;
    const uint64_t here = block.barriers_;
    ++block.arrived_;
    while (block.barriers_ == here) Yield();
  }
  static int BarrierCount(bool counted) {
    int& count = running_->counts_[running_->barriers_];
    count += counted ? 1 : 0;
    Barrier();
    return count;
  }
  // Aborts if the lane to read takes no part in the shuffle. On a GPU the value read would be undefined.
  template <class T>
  static T Shuffle(unsigned lanes, T value, size_t lane) {
    Block& block = *running_;
    const size_t own = block.current_, other = own / kWarp * kWarp + lane;
    const uint64_t pass = block.pass_;
    std::memcpy(&block.given_[own], &value, sizeof value);
    block.given_in_[own] = pass;
    Yield();
    const bool takes_part = (lanes >> own % kWarp & 1) != 0 && (lanes >> lane & 1) != 0;
    if (!takes_part || block.given_in_.at(other) != pass) {
      std::fputs("a shuffle reads a lane that takes no part in it\n", stderr);
      std::abort();
    }
    T taken;
    std::memcpy(&taken, &block.given_[other], sizeof taken);
    Yield();
    return taken;
  }
  static size_t Lane() { return running_->current_ % kWarp; }

 private:
  static constexpr size_t kStack = 16 << 10, kWarp = 32;
  struct Fiber {
    ucontext_t context{};
    std::vector<char> stack = std::vector<char>(kStack);
    bool ended = false;
  };

  void Begin(Fiber& fiber) {
    fiber.ended = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &home_;
    makecontext(&fiber.context, &Block::Enter, 0);
  }
  static void Enter() {
    (*running_->kernel_)();
    running_->fibers_[running_->current_].ended = true;
    --running_->alive_;
  }
  static void Yield() { swapcontext(&running_->fibers_[running_->current_].context, &running_->home_); }

  static inline Block* running_ = nullptr;
  const permafrost::KernelLauncher::Extent threads_;
  const Order order_;
  std::vector<Fiber> fibers_;
  std::vector<uint64_t> given_;     // the value that each thread gave to a shuffle
  std::vector<uint64_t> given_in_;  // the pass in which each thread last gave a value
  std::map<uint64_t, int> counts_;  // BarrierCount's counts, by barrier
  const std::function<void()>* kernel_ = nullptr;
  ucontext_t home_{};
  size_t current_ = 0, alive_ = 0, arrived_ = 0;
  uint64_t barriers_ = 0;  // number of barriers that all threads have passed
  uint64_t pass_ = 0;
};

using Kernel = std::function<void(void** arguments)>;

// Wraps a kernel's function. The kernel's arguments are read from the addresses in `arguments`.
template <class... Arguments>
Kernel KernelOf(void (*function)(Arguments...)) {
  return [function](void** arguments) {
    [&]<size_t... kPlaces>(std::index_sequence<kPlaces...>) {
      function(*static_cast<std::remove_cvref_t<Arguments>*>(arguments[kPlaces])...);
    }
    (std::index_sequence_for<Arguments...>());
  };
}

class HostLauncher final : public permafrost::KernelLauncher {
 public:
  HostLauncher(std::map<std::string, Kernel> kernels, Order order) : kernels_(std::move(kernels)), order_(order) {}

  void Launch(const char* kernel, Extent blocks, Extent threads, void** arguments) const override {
    const auto found = kernels_.find(kernel);
    if (found == kernels_.end()) throw std::runtime_error(std::string("no kernel ") + kernel);
    Block block(threads, order_);
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        block_index = {x, y};
        block.Run([&] { found->second(arguments); });
      }
    }
  }

 private:
  std::map<std::string, Kernel> kernels_;
  const Order order_;
};

}  // namespace cuda_on_host

// NOLINTBEGIN(bugprone-reserved-identifier,cppcoreguidelines-macro-usage): CUDA's names.
#define __global__
#define __launch_bounds__(threads)
#define __device__ inline
// Shared memory may be static, because blocks run one after the other.
#define __shared__ static
#define __syncthreads cuda_on_host::Block::Barrier
#define __syncthreads_count cuda_on_host::Block::BarrierCount
#define __shfl_sync(mask, value, lane) cuda_on_host::Block::Shuffle(mask, value, static_cast<size_t>(lane))
#define __shfl_xor_sync(mask, value, other) \
  cuda_on_host::Block::Shuffle(mask, value, cuda_on_host::Block::Lane() ^ static_cast<size_t>(other))
#define threadIdx cuda_on_host::thread_index
#define blockIdx cuda_on_host::block_index
// NOLINTEND(bugprone-reserved-identifier,cppcoreguidelines-macro-usage)
