// The libraries of a CUDA device, none of which is linked: NVIDIA's driver, which tells which cards this machine has,
// and libtorch's CUDA half, in a module of this project. The driver is asked first, since the other half is large, and
// warns at length where there is no card. A program that links that half does not start on a machine without it, and
// where it is there, its 190 KB of static thread-local storage keep threads of small stacks (the HTTP server's have 100
// KB) from starting. Threads: safe anywhere.
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

// Calls of the driver, which return 0 or an error of CUresult. Source: CUDA driver API, cuInit, cuDriverGetVersion,
// cuDeviceGetCount.
struct CudaDriver {
  int (*init)(unsigned flags) = nullptr;
  int (*version)(int* version) = nullptr;  // 1000 * major + 10 * minor of CUDA
  int (*cards)(int* cards) = nullptr;
};

// Loads the driver from the library `path`, which stays loaded. Errors: FailedPrecondition in one line: it is missing,
// or is no driver.
absl::StatusOr<CudaDriver> LoadCudaDriver(const std::string& path = kCudaDriverFile);

// Returns how many cards the driver shows to this process, at least 1. Errors: FailedPrecondition in one line: there is
// none, or the driver does not begin.
absl::StatusOr<int> CountCards(const CudaDriver& driver);

// Checks that the driver serves programs made for CUDA `wanted`, a number as `version` writes it. Errors:
// FailedPrecondition in one line.
absl::Status CheckDriverVersion(const CudaDriver& driver, int wanted);

// A graph of a CUDA device: one capture and its replays. The implementation is a module that is loaded at run time
// (cuda/module), so that one program serves machines with and without a GPU; tests have their own.
// Threads: the device thread. Exceptions of the device, c10::Error, pass through all methods.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Begins to capture what this thread gives to its current stream, which is not the default one. Memory for it comes
  // from `pool`, which other live graphs may share. If it throws, the allocator is as before.
  virtual void BeginCapture(c10::MempoolId_t pool) = 0;
  // Ends the capture and makes it ready to be replayed. If it throws, the stream captures no longer, the allocator
  // records no longer, and this graph is of no more use.
  virtual void EndCapture() = 0;
  // Once EndCapture has returned. Enqueues the work on the current stream.
  virtual void Replay() = 0;
};

// The table that libpermafrost_cuda.so exports as `permafrost_cuda_module`. Plain pointers, since it crosses a boundary
// of libraries.
struct CudaModule {
  // "PERMAFROST/LIBTORCH": the versions of the headers that the module was compiled with. If they differ from the
  // program's, the module is refused.
  const char* version;
  DeviceGraph* (*make_graph)();  // the caller owns it
  c10::MempoolId_t (*new_pool)();
  // The bytes that cuBLAS and cuBLASLt take together for each stream that they run on, by CUBLAS_WORKSPACE_CONFIG or
  // libtorch's default for the current card.
  size_t (*workspace_bytes)();
  // Allocates memory of the host that kernels read, and tells its address there and for the device; false: there is
  // none. The memory is given back by free_pinned(host), which waits for the device.
  bool (*allocate_pinned)(size_t bytes, void** host, void** device);
  void (*free_pinned)(void* host);
  // Compiles CUDA C++ for the current card; the caller owns the result. Throws a std::exception whose first line says
  // why.
  KernelLauncher* (*compile_kernels)(const char* source);
};
#ifdef PERMAFROST_VERSION
// The version of what is compiled here; CMake tells it to the program's loader and to the module.
inline constexpr char kCudaModuleVersion[] = PERMAFROST_VERSION "/" TORCH_VERSION;
#endif
inline constexpr char kCudaModuleFile[] = "libpermafrost_cuda.so";
inline constexpr char kCudaModuleSymbol[] = "permafrost_cuda_module";

// Loads the module once, by the program's library path; later calls return what the first did. To be called before
// libtorch is asked for anything of CUDA: it keeps the first answer. Errors: FailedPrecondition in one line that says
// which of module, library and version is missing or wrong.
absl::StatusOr<const CudaModule*> LoadCudaModule();

// The same from the file `path`, on each call, for tests.
absl::StatusOr<const CudaModule*> LoadCudaModuleFrom(const std::string& path);

}  // namespace permafrost::device
