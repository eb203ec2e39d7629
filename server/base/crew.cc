#include "base/crew.h"

#include <algorithm>
#include <memory>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace permafrost {
namespace {

using Clock = std::chrono::steady_clock;

// A helper without work polls for kStaysAwake before it sleeps, because most regions of a step follow within that
// time. For the first kKeepsCore, it keeps its core. After that, it yields the core to other threads.
constexpr std::chrono::microseconds kKeepsCore(20), kStaysAwake(200);

void Pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls `done` until it returns true, or until kStaysAwake after `begin`. Returns the last result of `done`.
template <class Done>
bool Spin(const Done& done, Clock::time_point begin) {
  constexpr int kLooks = 64;  // polls between two looks at the clock
  while (true) {
    for (int i = 0; i < kLooks; ++i) {
      if (done()) return true;
      Pause();
    }
    const Clock::duration spun = Clock::now() - begin;
    if (spun > kStaysAwake) return false;
    if (spun > kKeepsCore) std::this_thread::yield();
  }
}

}  // namespace

Crew& Crew::OfThisThread(int threads) {
  thread_local std::unique_ptr<Crew> own;
  if (own == nullptr || own->size() != threads) {
    own = nullptr;  // ends the old threads first
    own = std::make_unique<Crew>(threads - 1);
  }
  return *own;
}

Crew::Crew(int helpers) : size_(helpers + 1) {
  threads_.reserve(static_cast<size_t>(helpers));
  for (int i = 0; i < helpers; ++i) {
    try {
      threads_.emplace_back([this] { Help(); });
    } catch (const std::exception&) {
      return;  // the other threads take the missing helpers' parts
    }
  }
}

Crew::~Crew() {
  ends_ = true;
  ++region_;
  region_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Crew::Run(int parts, void (*body)(const void*, int), const void* context) {
  const uint32_t region = region_.load(std::memory_order_relaxed) + 1;
  body_ = body;
  context_ = context;
  unfinished_.store(parts, std::memory_order_relaxed);
  claim_.store(Pack(region, parts, 0), std::memory_order_release);
  // A helper counts itself in asleep_ before its last look at region_. So a helper that is not yet counted here will
  // see the new region and not sleep.
  region_.store(region);
  const int asleep = asleep_.load(), awake = static_cast<int>(threads_.size()) - asleep;
  for (int wanted = std::min(parts - 1 - awake, asleep); wanted > 0; --wanted) region_.notify_one();
  Work(region);
  const auto finished = [this] { return unfinished_.load(std::memory_order_acquire) == 0; };
  while (!finished() && !Spin(finished, Clock::now())) {
    if (const int left = unfinished_.load(std::memory_order_acquire); left > 0) unfinished_.wait(left);
  }
  if (failed_.exchange(false)) std::rethrow_exception(std::exchange(error_, nullptr));
}

bool Crew::Work(uint32_t region) {
  for (bool worked = false;;) {
    uint64_t claim = claim_.load(std::memory_order_acquire);
    const auto next = static_cast<int>(claim & 0xffff), parts = static_cast<int>(claim >> 16 & 0xffff);
    if (claim >> 32 != region || next >= parts) return worked;
    if (!claim_.compare_exchange_weak(claim, claim + 1, std::memory_order_acq_rel)) continue;
    worked = true;
    try {
      body_(context_, next);
    } catch (...) {
      // The owner reads error_ at the end of Run, which it reaches only after this part has ended.
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

uint32_t Crew::AwaitRegion(uint32_t last, Clock::time_point worked) {
  const auto began = [&] { return region_.load(std::memory_order_acquire) != last; };
  if (!Spin(began, worked)) {
    ++asleep_;
    region_.wait(last);
    --asleep_;
  }
  return region_.load(std::memory_order_acquire);
}

void Crew::Help() {
  Clock::time_point worked = Clock::now();
  for (uint32_t region = 0; !ends_;) {
    region = AwaitRegion(region, worked);
    if (Work(region)) worked = Clock::now();
  }
}

}  // namespace permafrost
