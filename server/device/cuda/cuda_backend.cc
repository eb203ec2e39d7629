#include "device/cuda/cuda_backend.h"

#include <ATen/Context.h>
#include <ATen/core/GraphImplInterface.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>

#include "base/resident_memory.h"
#include "device/cuda/graph_capturer.h"
#include "device/shaped_program.h"

namespace permafrost::device {
namespace {

using c10::CachingAllocator::StatType;

class CudaBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::kCuda; }
  c10::Device device() const override { return {c10::kCUDA, 0}; }
  void Synchronize() const override { at::detail::getCUDAHooks().deviceSynchronize(device().index()); }
  absl::Status CheckCapture() const override { return absl::OkStatus(); }
  bool records() const override { return false; }
  std::unique_ptr<Capturer> MakeCapturer() const override {
    if (!HasGraphs()) return std::make_unique<ShapedCapturer>();
    return std::make_unique<GraphCapturer>(device());
  }
  StorageUse storage() const override {
    const auto stats = allocator().getDeviceStats(device().index());
    constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
    return {.bytes = stats.allocated_bytes[kAll].current,
            .peak_bytes = stats.allocated_bytes[kAll].peak,
            .allocations = stats.allocation[kAll].allocated};
  }
  void RestartStoragePeak() const override { allocator().resetPeakStats(device().index()); }
  // The driver tells of the device, whoever uses it.
  DeviceState Observe() const override {
    constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
    const auto stats = allocator().getDeviceStats(device().index());
    const auto [free, total] = allocator().getMemoryInfo(device().index());
    DeviceState state;
    state.memory.allocated = stats.allocated_bytes[kAll].current;
    state.memory.reserved = stats.reserved_bytes[kAll].current;
    state.memory.driver = static_cast<int64_t>(total - free);
    state.memory.recommended_max = static_cast<int64_t>(total);
    state.memory.resident = static_cast<int64_t>(ResidentBytes());
    if (!HasGraphs()) state.warnings.emplace_back("this libtorch has no CUDA graphs: steps run as they are");
    state.no_graph_entries_reason = "CUDA keeps no compiled graphs but the executables of jobs";
    return state;
  }
  int64_t memory_bytes() const override {
    return static_cast<int64_t>(allocator().getMemoryInfo(device().index()).second);
  }

 private:
  static bool HasGraphs() { return at::has_graph_impl(c10::kCUDA); }
  static c10::DeviceAllocator& allocator() {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    return *at::getDeviceAllocator(c10::kCUDA);
  }
};

}  // namespace

bool HasCuda() { return at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() > 0; }

std::unique_ptr<Backend> MakeCudaBackend() { return std::make_unique<CudaBackend>(); }

}  // namespace permafrost::device
