// libpermafrost_cuda.so: graphs by libtorch's CUDA half. Loaded by device/cuda/cuda_module.
#include "device/cuda/cuda_module.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <exception>
#include <memory>

#include "device/cuda/cuda_module_version.h"
#include "device/cuda/device_graph.h"
#include "device/cuda/module/kernels.h"

namespace at::cuda {

// libtorch declares these in ATen/cuda/CUDAContextLight.h, which would need the headers of cuBLAS, cuSPARSE and
// cuSOLVER.
size_t getChosenWorkspaceSize();
size_t getCUDABlasLtWorkspaceSize();

}  // namespace at::cuda

namespace permafrost::device {
namespace {

// libtorch's graph, which after a failed capture leaves the allocator recording to its pool, by a filter that refers to
// the graph, and a use of the pool that nobody gives back.
class CapturedGraph final : public at::cuda::CUDAGraph {
 public:
  void Begin(c10::MempoolId_t pool) {
    try {
      // Only this thread is captured: other threads go on calling the device, such as the one that gathers batches.
      capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      // If recording has not begun, the pool was refused, and this graph does not use it.
      if (StopRecording()) GiveUpPool();
      throw;
    }
  }
  void End() {
    try {
      capture_end();
    } catch (...) {
      StopRecording();
      if (!capture_ended_) GiveUpPool();  // else the destructor does
      throw;
    }
  }

 private:
  // False: there was nothing to undo, for which the allocators throw.
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

// Not by libtorch's allocator of pinned memory, which rounds up to a power of two and keeps what was freed.
bool AllocatePinned(size_t bytes, void** host, void** device) {
  if (cudaHostAlloc(host, bytes, cudaHostAllocMapped) == cudaSuccess) {
    if (cudaHostGetDevicePointer(device, *host, 0) == cudaSuccess) return true;
    static_cast<void>(cudaFreeHost(*host));
  }
  static_cast<void>(cudaGetLastError());  // or the next check of libtorch would find it
  return false;
}

void FreePinned(void* host) { static_cast<void>(cudaFreeHost(host)); }

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
