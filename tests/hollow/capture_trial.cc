// Tests the life of graphs and their memory pools, with libtorch's own allocator and graphs on a hollow GPU
// (hollow.h). Prints a line for each part. The exit code is 1 if a part fails.
// Usage: capture_trial libpermafrost_cuda.so
#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "device/cuda/cuda_libraries.h"

namespace {

using permafrost::device::CudaModule;
using permafrost::device::DeviceGraph;

int failures = 0;

void Expect(bool holds, const std::string& what) {
  std::cout << (holds ? "ok      " : "FAILED  ") << what << "\n";
  failures += holds ? 0 : 1;
}

// A graph and the memory that it keeps alive.
struct Captured {
  std::unique_ptr<DeviceGraph> graph;
  at::Tensor result;
};

class Trial {
 public:
  explicit Trial(const CudaModule& module) : module_(module) {}

  // Returns null and sets `error` if the capture is refused.
  std::optional<Captured> Capture(c10::MempoolId_t pool, int64_t rows = 1000) {
    std::unique_ptr<DeviceGraph> graph(module_.make_graph());
    try {
      graph->BeginCapture(pool);
      at::Tensor result;
      try {
        const at::Tensor x = at::empty({rows, 64}, at::TensorOptions().device(at::kCUDA));
        result = x.add(1).mul(2);
      } catch (const c10::Error& e) {
        error = e.what_without_backtrace();
        graph->EndCapture();
        return std::nullopt;
      }
      graph->EndCapture();
      graph->Replay();
      return Captured{std::move(graph), std::move(result)};
    } catch (const c10::Error& e) {
      error = e.what_without_backtrace();
      return std::nullopt;
    }
  }
  c10::MempoolId_t NewPool() const { return module_.new_pool(); }

  std::string error;

 private:
  const CudaModule& module_;
};

// Turns on a switch of the hollow GPU for as long as this lives.
class Switch {
 public:
  explicit Switch(const std::string& name) : path_(std::filesystem::path(std::getenv("HOLLOW_DIR")) / name) {
    std::ofstream(path_).flush();
  }
  Switch(const Switch&) = delete;
  ~Switch() { std::filesystem::remove(path_); }

 private:
  const std::filesystem::path path_;
};

void Run(const CudaModule& module) {
  Trial trial(module);
  const auto pool = trial.NewPool();
  {
    const auto first = trial.Capture(pool), second = trial.Capture(pool);
    Expect(first && second, "two graphs share a pool");
  }
  const bool reused = trial.Capture(pool).has_value();
  Expect(!reused, "libtorch refuses a pool whose last graph is gone: " + trial.error.substr(0, 48));
  Expect(trial.Capture(trial.NewPool()).has_value(), "a pool that is new is taken after that");

  const auto shared = trial.NewPool();
  const auto lives = trial.Capture(shared);
  {
    const Switch invalidate("invalidate");
    Expect(!trial.Capture(shared), "a capture that the device ends with an error is refused");
  }
  Expect(trial.Capture(shared).has_value(), "the pool of a graph that lives is taken after that");

  bool had_memory = true;
  {
    const Switch no_memory("no-capture-memory");
    had_memory = trial.Capture(shared, int64_t{1} << 20).has_value();
  }
  Expect(!had_memory, "memory that the device does not have is refused");
  Expect(trial.error.find("out of memory") != trial.error.npos, "and is told as that: " + trial.error.substr(0, 60));
  Expect(trial.Capture(trial.NewPool()).has_value(), "the next capture is none the worse");

  lives->graph->Replay();
  at::getDeviceAllocator(at::kCUDA)->emptyCache();
  Expect(trial.Capture(trial.NewPool()).has_value(), "nor is one after the allocator's cache was emptied");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: capture_trial libpermafrost_cuda.so\n";
    return 2;
  }
  void* const library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    std::cerr << dlerror() << "\n";
    return 2;
  }
  const auto* const module = static_cast<const CudaModule*>(dlsym(library, permafrost::device::kCudaModuleSymbol));
  std::cout << "module of " << module->version << ", " << static_cast<int>(at::detail::getCUDAHooks().deviceCount())
            << " card\n";
  at::globalContext().lazyInitDevice(at::kCUDA);
  const c10::Device device(at::kCUDA, 0);
  const c10::StreamGuard on_side(c10::impl::VirtualGuardImpl(at::kCUDA).getNewStream(device));
  Run(*module);
  return failures == 0 ? 0 : 1;
}
