#include "device/mps/mps_backend.h"

#include <ATen/Context.h>
#include <ATen/detail/MPSHooksInterface.h>

#include <algorithm>
#include <atomic>

#include "base/resident_memory.h"
#include "device/shaped_program.h"

namespace permafrost::device {
namespace {

class MpsBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::kMps; }
  c10::Device device() const override { return {c10::kMPS, 0}; }
  void Synchronize() const override { at::detail::getMPSHooks().deviceSynchronize(); }
  absl::Status CheckCapture() const override { return absl::OkStatus(); }
  bool records() const override { return false; }
  std::unique_ptr<Capturer> MakeCapturer() const override { return std::make_unique<ShapedCapturer>(); }
  // The peak is the largest of what was asked for: MPS keeps none.
  StorageUse storage() const override {
    const auto bytes = static_cast<int64_t>(at::detail::getMPSHooks().getCurrentAllocatedMemory());
    int64_t peak = peak_;
    while (bytes > peak && !peak_.compare_exchange_weak(peak, bytes)) {
    }
    return {.bytes = bytes, .peak_bytes = std::max(peak, bytes), .allocations = 0};
  }
  void RestartStoragePeak() const override { peak_ = 0; }
  DeviceState Observe() const override {
    const at::MPSHooksInterface& hooks = at::detail::getMPSHooks();
    DeviceState state;
    state.memory.allocated = static_cast<int64_t>(hooks.getCurrentAllocatedMemory());
    state.memory.driver = static_cast<int64_t>(hooks.getDriverAllocatedMemory());
    state.memory.recommended_max = static_cast<int64_t>(hooks.getRecommendedMaxMemory());
    state.memory.resident = static_cast<int64_t>(ResidentBytes());
    state.no_graph_entries_reason = "not counted yet";
    return state;
  }
  int64_t memory_bytes() const override {
    return static_cast<int64_t>(at::detail::getMPSHooks().getRecommendedMaxMemory());
  }

 private:
  mutable std::atomic<int64_t> peak_{0};
};

}  // namespace

bool HasMps() { return at::hasMPS(); }

std::unique_ptr<Backend> MakeMpsBackend() { return std::make_unique<MpsBackend>(); }

}  // namespace permafrost::device
