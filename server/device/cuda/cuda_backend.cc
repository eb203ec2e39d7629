#include "device/cuda/cuda_backend.h"

#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "device/backend.h"
#include "device/cuda/cuda_libraries.h"
#include "device/cuda/graph_capturer.h"
#include "device/fault.h"

namespace permafrost::device {
namespace {

using c10::CachingAllocator::StatType;
// The greatest age of the device state that other threads see during training.
constexpr std::chrono::milliseconds kPublishInterval(200);
// The number of streams on which cuBLAS runs: one for steps, and one for captures (graph_capturer.h).
constexpr int64_t kMathStreams = 2;
constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);

class CudaBackend final : public Backend {
 public:
  CudaBackend(int index, const CudaModule& module)
      : device_(c10::kCUDA, static_cast<c10::DeviceIndex>(index)), module_(module) {
    const auto [free, total] = Allocator().getMemoryInfo(device_.index());
    total_ = static_cast<int64_t>(total);
    // The default size of a workspace depends on the current card.
    const c10::DeviceGuard on_card(device_);
    for_jobs_ = static_cast<int64_t>(free) - kMathStreams * static_cast<int64_t>(module_.workspace_bytes());
    Publish();
  }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  c10::Device device() const override { return device_; }
  void Synchronize() const override { at::detail::getCUDAHooks().deviceSynchronize(device_.index()); }
  absl::Status CheckCapture() const override { return absl::OkStatus(); }
  bool records() const override { return false; }
  bool captures_graphs() const override { return true; }
  std::unique_ptr<Capturer> MakeCapturer() const override {
    return std::make_unique<GraphCapturer>(GraphDevice{
        .device = device_,
        .make_graph = [this] { return std::unique_ptr<DeviceGraph>(module_.make_graph()); },
        .new_pool = module_.new_pool,
        .empty_cache = [] { Allocator().emptyCache(); },
        .staging = {.host_memory = at::detail::getCUDAHooks().getPinnedMemoryAllocator(), .own_stream = true}});
  }

  absl::StatusOr<std::unique_ptr<KernelLauncher>> CompileKernels(const char* source) const override {
    const c10::DeviceGuard on_card(device_);
    try {
      return std::unique_ptr<KernelLauncher>(module_.compile_kernels(source));
    } catch (const std::exception& error) {
      const std::string_view what = error.what();
      return absl::FailedPreconditionError(AbslView(what.substr(0, what.find('\n'))));
    }
  }

  absl::Status Enter() const override {
    PF_RETURN_IF_ERROR(owner_.Claim("cuda"));
    // Each thread has its own current device. It is set here, since the hooks of libtorch 2.11 cannot set it.
    c10::impl::VirtualGuardImpl(device_.type()).setDevice(device_);
    return absl::OkStatus();
  }
  absl::Status Within(const std::function<absl::Status()>& step) const override {
    PF_RETURN_IF_ERROR(owner_.Claim("a step"));
    const absl::Status ran = InOne(step);
    // The outermost Within publishes too. If it ended a job, it freed memory, and no later step would publish the new
    // state.
    if (depth_ == 0) UnlessFatal([this] { Publish(); });
    return ran;
  }
  absl::StatusOr<bool> EndStep() const override {
    PF_RETURN_IF_ERROR(owner_.Claim("EndStep"));
    // Does not publish after every step, because Publish asks the driver, and that takes longer than a small step.
    if (const auto now = std::chrono::steady_clock::now(); now >= next_publication_) {
      next_publication_ = now + kPublishInterval;
      Publish();
    }
    return false;
  }
  absl::Status EmptyCaches(EmptyReason /*reason*/) const override {
    PF_RETURN_IF_ERROR(owner_.Claim("EmptyCaches"));
    Allocator().emptyCache();
    Publish();
    return absl::OkStatus();
  }

  StorageUse storage() const override {
    if (owner_.IsThis()) return ReadStorage();
    const absl::MutexLock lock(&mutex_);
    return storage_;
  }
  void RestartStoragePeak() const override { Allocator().resetPeakStats(device_.index()); }
  DeviceState Observe() const override {
    DeviceState state;
    {
      const absl::MutexLock lock(&mutex_);
      state = state_;
    }
    state.memory.resident = static_cast<int64_t>(ResidentBytes());
    return state;
  }
  // The result is at least 1, since 0 would mean that the memory is not known.
  int64_t memory_bytes() const override { return std::max<int64_t>(1, for_jobs_); }
  std::optional<PinnedRows> AllocatePinned(int64_t rows, int64_t width) const override {
    void *host = nullptr, *device = nullptr;
    if (!module_.allocate_pinned(sizeof(float) * static_cast<size_t>(rows * width), &host, &device)) {
      return std::nullopt;
    }
    const std::shared_ptr<void> owner(host, module_.free_pinned);
    // Both tensors keep the memory alive.
    const auto keep = [owner](void* /*memory*/) {};
    const at::TensorOptions options = at::TensorOptions().dtype(at::kFloat);
    return PinnedRows{.host = at::from_blob(host, {rows, width}, keep, options),
                      .device = at::from_blob(device, {rows, width}, keep, options.device(device_), device_)};
  }

 private:
  static c10::DeviceAllocator& Allocator() {
    at::globalContext().lazyInitDevice(c10::kCUDA);
    return *at::getDeviceAllocator(c10::kCUDA);
  }
  // Runs `step` with depth_ one higher than before.
  absl::Status InOne(const std::function<absl::Status()>& step) const {
    struct Level {
      explicit Level(int& of) : depth(of) { ++depth; }
      Level(const Level&) = delete;
      ~Level() { --depth; }
      int& depth;
    } const level(depth_);
    return step();
  }
  StorageUse ReadStorage() const {
    const auto stats = Allocator().getDeviceStats(device_.index());
    return {.bytes = stats.allocated_bytes[kAll].current,
            .peak_bytes = stats.allocated_bytes[kAll].peak,
            .allocations = stats.allocation[kAll].allocated};
  }
  // Reads and publishes the values that only the device's thread may read. If another thread asked the driver how
  // much memory is free, that would invalidate a capture. That thread could also wait long for the allocator's lock,
  // which is held while the driver finds memory.
  void Publish() const {
    const StorageUse storage = ReadStorage();
    const auto stats = Allocator().getDeviceStats(device_.index());
    DeviceState state;
    state.memory.allocated = stats.allocated_bytes[kAll].current;
    state.memory.reserved = stats.reserved_bytes[kAll].current;
    // The driver tells how much of the card's memory all processes together use.
    state.memory.driver = total_ - static_cast<int64_t>(Allocator().getMemoryInfo(device_.index()).first);
    state.memory.recommended_max = total_;
    state.no_graph_entries_reason = "CUDA keeps no compiled graphs but the executables of jobs";
    const absl::MutexLock lock(&mutex_);
    state_ = std::move(state);
    storage_ = storage;
  }

  const c10::Device device_;
  const CudaModule& module_;
  int64_t total_ = 0;     // bytes of the card
  int64_t for_jobs_ = 0;  // bytes that were free when the card was opened, minus the workspaces
  mutable OwnerThread owner_;
  // Only the owner thread uses the next two members.
  mutable std::chrono::steady_clock::time_point next_publication_;
  mutable int depth_ = 0;  // nesting depth of Within

  mutable absl::Mutex mutex_;
  mutable DeviceState state_ ABSL_GUARDED_BY(mutex_);
  mutable StorageUse storage_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::Status FindCuda(int index) {
  PF_ASSIGN_OR_RETURN(const CudaDriver driver, LoadCudaDriver());
  PF_ASSIGN_OR_RETURN(const int cards, CountCards(driver));
  if (index >= cards) {
    return absl::FailedPreconditionError(absl::StrCat(
        "there ", cards == 1 ? "is 1 card" : absl::StrCat("are ", cards, " cards"), ", counted from cuda:0"));
  }
  PF_RETURN_IF_ERROR(LoadCudaModule().status());
  if (!at::hasCUDA()) {
    return absl::FailedPreconditionError(
        absl::StrCat(kCudaModuleFile, " is loaded, but libtorch was asked for CUDA before and keeps that it has none"));
  }
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  PF_RETURN_IF_ERROR(CheckDriverVersion(driver, static_cast<int>(hooks.versionCUDART())));
  if (hooks.deviceCount() <= index) {
    return absl::FailedPreconditionError("libtorch's CUDA half finds fewer cards than NVIDIA's driver (nvidia-smi)");
  }
  return absl::OkStatus();
}

std::unique_ptr<Backend> MakeCudaBackend(int index) { return std::make_unique<CudaBackend>(index, **LoadCudaModule()); }

}  // namespace permafrost::device
