// libtorch's CUDA half, loaded when a CUDA device is first asked for. A program that links it does not start on a
// machine without it, and where it is there, its 190 KB of static thread-local storage keep threads of small stacks
// (the HTTP server's have 100 KB) from starting. Threads: safe anywhere.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "base/kernel_launcher.h"
#include "device/cuda/device_graph.h"

namespace permafrost::device {

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
inline constexpr char kCudaModuleFile[] = "libpermafrost_cuda.so";
inline constexpr char kCudaModuleSymbol[] = "permafrost_cuda_module";

// Loads the module once, by the program's library path; later calls return what the first did. To be called before
// libtorch is asked for anything of CUDA: it keeps the first answer. Errors: FailedPrecondition in one line that says
// which of module, library and version is missing or wrong.
absl::StatusOr<const CudaModule*> LoadCudaModule();

// The same from the file `path`, on each call, for tests.
absl::StatusOr<const CudaModule*> LoadCudaModuleFrom(const std::string& path);

}  // namespace permafrost::device
