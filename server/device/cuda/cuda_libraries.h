// The libraries that a CUDA device needs. The program loads them at run time and does not link them. The first is
// NVIDIA's driver, which lists the cards of this machine. The second is a module of this project that links
// libtorch's CUDA half. The driver is loaded first, since the CUDA half is large, and prints long warnings on
// machines without a card.
// There are two reasons not to link the CUDA half. A program that links the CUDA half does not start on a machine
// without it. The static thread-local storage of the CUDA half takes 190 KB of each thread's stack. Threads with
// smaller stacks then do not start, and those of the HTTP server have 100 KB.
// Threads: safe anywhere.
#pragma once

#include <c10/core/Allocator.h>
#include <torch/headeronly/version.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/operators.h"

namespace permafrost::device {

inline constexpr char kCudaDriverFile[] = "libcuda.so.1";

// Functions of the driver. Each returns 0 or an error of CUresult. Source: CUDA driver API, cuInit,
// cuDriverGetVersion, cuDeviceGetCount.
struct CudaDriver {
  int (*init)(unsigned flags) = nullptr;
  int (*version)(int* version) = nullptr;  // 1000 * major + 10 * minor of CUDA's version
  int (*cards)(int* cards) = nullptr;
};

// Loads the driver from the library `path`, which stays loaded. Errors: FailedPrecondition, in one line, if the
// library is missing or is not a driver.
absl::StatusOr<CudaDriver> LoadCudaDriver(const std::string& path = kCudaDriverFile);

// Returns how many cards the driver shows to this process, at least 1. Errors: FailedPrecondition, in one line, if
// there is no card or the driver does not initialise.
absl::StatusOr<int> CountCards(const CudaDriver& driver);

// Checks that the driver serves programs made for version `wanted` of CUDA, in the format of CudaDriver::version.
// Errors: FailedPrecondition, in one line, if it does not.
absl::Status CheckDriverVersion(const CudaDriver& driver, int wanted);

// A graph of a CUDA device: one capture, replayed any number of times. The module that is loaded at run time
// (cuda/module) implements it, so that one program serves machines with and without a GPU. Tests have their own
// implementation.
// Threads: the device thread. Exceptions of the device, c10::Error, pass through all methods.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Begins to capture the work that this thread enqueues on its current stream. The current stream must not be the
  // default stream. The graph's memory comes from `pool`, which other live graphs may share. If this call throws, the
  // allocator is as before.
  virtual void BeginCapture(c10::MempoolId_t pool) = 0;
  // Ends the capture and makes the graph ready to be replayed. If this call throws, the stream no longer captures,
  // the allocator no longer allocates from the pool, and the graph must not be used any more.
  virtual void EndCapture() = 0;
  // Enqueues the work of the graph on the current stream. Call it only after EndCapture has returned.
  virtual void Replay() = 0;
};

// The table of functions that libpermafrost_cuda.so exports as `permafrost_cuda_module`. It has only plain pointers,
// since it is passed between two libraries.
struct CudaModule {
  // The versions of the headers with which the module was compiled, as "PERMAFROST/LIBTORCH". The program refuses a
  // module with other versions than its own.
  const char* version;
  DeviceGraph* (*make_graph)();  // the caller owns it
  c10::MempoolId_t (*new_pool)();
  // Returns the bytes of the workspaces that cuBLAS and cuBLASLt together allocate for each stream on which they run.
  // CUBLAS_WORKSPACE_CONFIG sets the number; without it, libtorch has a default for the current card.
  size_t (*workspace_bytes)();
  // Allocates host memory that kernels can read, and stores its addresses for the host and for the device. Returns
  // false if there is no room. free_pinned(host) waits for the device and frees the memory.
  bool (*allocate_pinned)(size_t bytes, void** host, void** device);
  void (*free_pinned)(void* host);
  // Compiles CUDA C++ for the current card. The caller owns the result. Throws a std::exception whose first line gives
  // the reason.
  KernelLauncher* (*compile_kernels)(const char* source);
};
#ifdef PERMAFROST_VERSION
// The version of the code that includes this header. CMake passes the same value to the program and to the module.
inline constexpr char kCudaModuleVersion[] = PERMAFROST_VERSION "/" TORCH_VERSION;
#endif
inline constexpr char kCudaModuleFile[] = "libpermafrost_cuda.so";
inline constexpr char kCudaModuleSymbol[] = "permafrost_cuda_module";

// Finds the module on the program's library path and loads it once. Later calls return the first result. Call it
// before any code asks libtorch about CUDA, since libtorch keeps its first answer. Errors: FailedPrecondition, in one
// line, if the module or one of its libraries is missing, or if its version is wrong.
absl::StatusOr<const CudaModule*> LoadCudaModule();

// Loads the module from the file `path`, anew on each call. For tests.
absl::StatusOr<const CudaModule*> LoadCudaModuleFrom(const std::string& path);

}  // namespace permafrost::device
