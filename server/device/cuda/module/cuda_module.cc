// The module libpermafrost_cuda.so, which cuda_libraries.cc loads. It makes graphs by libtorch's CUDA half, and
// compiles kernels in CUDA C++ by NVRTC, which comes with that half.
#include "device/cuda/cuda_libraries.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/operators.h"

namespace at::cuda {

// libtorch declares these two functions in ATen/cuda/CUDAContextLight.h. That header is not included, since it needs
// the headers of cuBLAS, cuSPARSE and cuSOLVER.
size_t getChosenWorkspaceSize();
size_t getCUDABlasLtWorkspaceSize();

}  // namespace at::cuda

namespace permafrost::device {
namespace {

// libtorch's graph, with clean-up after a failed capture. Without the clean-up, the allocator would go on allocating
// from the graph's pool, through a filter that refers to the graph. The graph would also never release its use of the
// pool.
class CapturedGraph final : public at::cuda::CUDAGraph {
 public:
  void Begin(c10::MempoolId_t pool) {
    try {
      // Only this thread is captured. Other threads, such as the one that gathers batches, go on calling the device.
      capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      // If the allocator was not recording, it refused the pool, and this graph does not use the pool.
      if (StopRecording()) GiveUpPool();
      throw;
    }
  }
  void End() {
    try {
      capture_end();
    } catch (...) {
      StopRecording();
      if (!capture_ended_) GiveUpPool();  // otherwise the destructor gives up the pool
      throw;
    }
  }

 private:
  // Returns false if `undo` throws, because the allocators throw if there is nothing to undo.
  template <class Undo>
  static bool Try(const Undo& undo) {
    try {
      undo();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }
  // Returns true if the device's allocator was recording.
  bool StopRecording() {
    Try([this] { at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_); });
    return Try([this] { c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_); });
  }
  void GiveUpPool() {
    Try([this] { c10::cuda::CUDACachingAllocator::releasePool(capture_dev_, mempool_id_); });
    Try([this] { at::getHostAllocator(at::kCUDA)->release_pool(mempool_id_); });
  }
};

class CudaGraph final : public DeviceGraph {
 public:
  void BeginCapture(c10::MempoolId_t pool) override { graph_.Begin(pool); }
  void EndCapture() override { graph_.End(); }
  void Replay() override { graph_.replay(); }

 private:
  CapturedGraph graph_;
};

DeviceGraph* MakeGraph() { return std::make_unique<CudaGraph>().release(); }

size_t WorkspaceBytes() { return at::cuda::getChosenWorkspaceSize() + at::cuda::getCUDABlasLtWorkspaceSize(); }

// Allocates pinned memory directly, because libtorch's allocator for pinned memory rounds sizes up to a power of two
// and keeps freed blocks.
bool AllocatePinned(size_t bytes, void** host, void** device) {
  if (cudaHostAlloc(host, bytes, cudaHostAllocMapped) == cudaSuccess) {
    if (cudaHostGetDevicePointer(device, *host, 0) == cudaSuccess) return true;
    static_cast<void>(cudaFreeHost(*host));
  }
  static_cast<void>(cudaGetLastError());  // clears the error, which libtorch's next check would find
  return false;
}

void FreePinned(void* host) { static_cast<void>(cudaFreeHost(host)); }

// The library through which libtorch's CUDA half finds NVRTC. This library knows the path of NVRTC, and needs
// NVIDIA's driver.
constexpr char kNvrtcOfTorch[] = "libcaffe2_nvrtc.so";

// The functions of NVRTC that the module uses. They are loaded at run time, since a daemon without NVRTC can still
// train.
struct Nvrtc {
  decltype(&nvrtcCreateProgram) create;
  decltype(&nvrtcCompileProgram) compile;
  decltype(&nvrtcDestroyProgram) destroy;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcGetCUBIN) cubin;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetErrorString) error;
};

std::string LoaderError() {
  const char* const error = dlerror();
  return error == nullptr ? "no reason given" : error;
}

// Loads NVRTC's library of builtins from NVRTC's folder. NVRTC opens the library by its bare name, and finds it only
// if it is loaded already.
void LoadBuiltins(const void* of_nvrtc) {
  Dl_info found{};
  if (dladdr(of_nvrtc, &found) == 0 || found.dli_fname == nullptr) return;
  const std::string file = found.dli_fname;
  const std::string builtins = file.substr(0, file.rfind('/') + 1) + "libnvrtc-builtins.so." +
                               std::to_string(CUDART_VERSION / 1000) + "." + std::to_string(CUDART_VERSION % 1000 / 10);
  static_cast<void>(dlopen(builtins.c_str(), RTLD_NOW | RTLD_GLOBAL));
}

Nvrtc LoadNvrtc() {
  const std::string own = "libnvrtc.so." + std::to_string(CUDART_VERSION / 1000);
  void* library = dlopen(own.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen(kNvrtcOfTorch, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error("NVRTC cannot be loaded: " + LoaderError());
  Nvrtc nvrtc{};
  const auto find = [library]<class Function>(Function*& place, const char* name) {
    place = reinterpret_cast<Function*>(dlsym(library, name));
    if (place == nullptr) throw std::runtime_error("NVRTC cannot be used: " + LoaderError());
  };
  find(nvrtc.create, "nvrtcCreateProgram");
  find(nvrtc.compile, "nvrtcCompileProgram");
  find(nvrtc.destroy, "nvrtcDestroyProgram");
  find(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  find(nvrtc.cubin, "nvrtcGetCUBIN");
  find(nvrtc.log_size, "nvrtcGetProgramLogSize");
  find(nvrtc.log, "nvrtcGetProgramLog");
  find(nvrtc.error, "nvrtcGetErrorString");
  LoadBuiltins(reinterpret_cast<const void*>(nvrtc.compile));
  return nvrtc;
}

// Returns the architecture of the current card, such as "sm_90".
std::string ArchitectureOfCard() {
  int card = 0, major = 0, minor = 0;
  C10_CUDA_CHECK(cudaGetDevice(&card));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, card));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, card));
  return "sm_" + std::to_string(major) + std::to_string(minor);
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<char> Compile(const char* source) {
  const Nvrtc nvrtc = LoadNvrtc();
  const std::string architecture = ArchitectureOfCard(), option = "--gpu-architecture=" + architecture;
  nvrtcProgram made = nullptr;
  if (const nvrtcResult begun = nvrtc.create(&made, source, "kernels.cu", 0, nullptr, nullptr);
      begun != NVRTC_SUCCESS) {
    throw std::runtime_error(std::string("NVRTC does not begin: ") + nvrtc.error(begun));
  }
  const auto destroy = [&nvrtc](nvrtcProgram program) { nvrtc.destroy(&program); };
  const std::unique_ptr<_nvrtcProgram, decltype(destroy)> program(made, destroy);
  const char* const options[] = {option.c_str(), "--std=c++17"};
  if (const nvrtcResult compiled = nvrtc.compile(made, 2, options); compiled != NVRTC_SUCCESS) {
    size_t size = 0;
    std::string log;
    if (nvrtc.log_size(made, &size) == NVRTC_SUCCESS && size > 1) {
      log.resize(size);
      nvrtc.log(made, log.data());
    }
    throw std::runtime_error("NVRTC compiles no kernels for " + architecture + ": " +
                             (log.empty() ? nvrtc.error(compiled) : FirstLine(log)));
  }
  size_t size = 0;
  nvrtc.cubin_size(made, &size);
  std::vector<char> code(size);
  if (const nvrtcResult read = nvrtc.cubin(made, code.data()); read != NVRTC_SUCCESS || size == 0) {
    throw std::runtime_error("NVRTC made no code for " + architecture + ": " + nvrtc.error(read));
  }
  return code;
}

class Kernels final : public KernelLauncher {
 public:
  explicit Kernels(std::vector<char> code) : code_(std::move(code)) {
    C10_CUDA_CHECK(cudaLibraryLoadData(&library_, code_.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  }
  Kernels(const Kernels&) = delete;
  ~Kernels() override { static_cast<void>(cudaLibraryUnload(library_)); }

  void Launch(const char* kernel, Extent blocks, Extent threads, void** arguments) const override {
    C10_CUDA_CHECK(cudaLaunchKernel(Find(kernel), dim3(blocks.x, blocks.y), dim3(threads.x, threads.y), arguments, 0,
                                    c10::cuda::getCurrentCUDAStream()));
  }

 private:
  const void* Find(const char* name) const {
    cudaKernel_t& kernel = kernels_[name];
    if (kernel == nullptr) C10_CUDA_CHECK(cudaLibraryGetKernel(&kernel, library_, name));
    return kernel;
  }

  const std::vector<char> code_;
  cudaLibrary_t library_ = nullptr;
  mutable std::map<std::string, cudaKernel_t, std::less<>> kernels_;
};

KernelLauncher* CompileKernels(const char* source) { return std::make_unique<Kernels>(Compile(source)).release(); }

}  // namespace
}  // namespace permafrost::device

extern "C" {
extern const permafrost::device::CudaModule permafrost_cuda_module;
const permafrost::device::CudaModule permafrost_cuda_module{.version = permafrost::device::kCudaModuleVersion,
                                                            .make_graph = permafrost::device::MakeGraph,
                                                            .new_pool = at::cuda::graph_pool_handle,
                                                            .workspace_bytes = permafrost::device::WorkspaceBytes,
                                                            .allocate_pinned = permafrost::device::AllocatePinned,
                                                            .free_pinned = permafrost::device::FreePinned,
                                                            .compile_kernels = permafrost::device::CompileKernels};
}
