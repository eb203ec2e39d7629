// The libraries of a CUDA device, which the program loads at run time and does not link. One is NVIDIA's driver,
// which tells which cards this machine has. The other is libtorch's CUDA half, in a module of this project. The
// driver comes first, since the CUDA half is large, and prints long warnings where there is no card. A program that
// links the CUDA half does not start on a machine that lacks this half. If the CUDA half is linked, its 190 KB of
// static thread-local storage keep threads with small stacks from starting. Threads of the HTTP server have 100 KB.
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

// Functions of the driver, which return 0 or an error of CUresult. Source: CUDA driver API, cuInit,
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

// Checks that the driver serves programs made for version `wanted` of CUDA, a number as CudaDriver::version writes it.
// Errors: FailedPrecondition in one line.
absl::Status CheckDriverVersion(const CudaDriver& driver, int wanted);

// A graph of a CUDA device: one capture and its replays. The implementation is in a module that is loaded at run time
// (cuda/module), so that one program serves machines with and without a GPU. Tests have their own implementation.
// Threads: the device thread. Exceptions of the device, c10::Error, pass through all methods.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Begins to capture the work that this thread enqueues on its current stream, which must not be the default stream.
  // The graph's memory comes from `pool`, which other live graphs may share. If this throws, the allocator is as
  // before.
  virtual void BeginCapture(c10::MempoolId_t pool) = 0;
  // Ends the capture and makes the graph ready to be replayed. If this throws, the stream no longer captures, the
  // allocator no longer records, and this graph must not be used any more.
  virtual void EndCapture() = 0;
  // Enqueues the work of the graph on the current stream. Call it only after EndCapture has returned.
  virtual void Replay() = 0;
};

// The table that libpermafrost_cuda.so exports as `permafrost_cuda_module`. It has plain pointers only, since it
// crosses a boundary of libraries.
struct CudaModule {
  // "PERMAFROST/LIBTORCH": the versions of the headers that the module was compiled with. A module whose versions
  // differ from the program's is refused.
  const char* version;
  DeviceGraph* (*make_graph)();  // the caller owns it
  c10::MempoolId_t (*new_pool)();
  // Returns the bytes that cuBLAS and cuBLASLt take together for each stream that they run on. The number follows
  // from CUBLAS_WORKSPACE_CONFIG, or from libtorch's default for the current card.
  size_t (*workspace_bytes)();
  // Allocates host memory that kernels can read, and stores its addresses for the host and for the device. Returns
  // false if there is no room. free_pinned(host) frees the memory and waits for the device.
  bool (*allocate_pinned)(size_t bytes, void** host, void** device);
  void (*free_pinned)(void* host);
  // Compiles CUDA C++ for the current card. The caller owns the result. Throws a std::exception whose first line gives
  // the reason.
  KernelLauncher* (*compile_kernels)(const char* source);
};
#ifdef PERMAFROST_VERSION
// The version of the code compiled here. CMake passes it to the program's loader and to the module.
inline constexpr char kCudaModuleVersion[] = PERMAFROST_VERSION "/" TORCH_VERSION;
#endif
inline constexpr char kCudaModuleFile[] = "libpermafrost_cuda.so";
inline constexpr char kCudaModuleSymbol[] = "permafrost_cuda_module";

// Loads the module once, by the program's library path. Later calls return the first result. Call it before anything
// asks libtorch about CUDA, since libtorch keeps its first answer. Errors: FailedPrecondition, in one line that says
// whether the module, a library or the version is missing or wrong.
absl::StatusOr<const CudaModule*> LoadCudaModule();

// Loads the module from the file `path`, anew on each call. For tests.
absl::StatusOr<const CudaModule*> LoadCudaModuleFrom(const std::string& path);

}  // namespace permafrost::device
