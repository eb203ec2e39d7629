#include "device/mps/mps_backend.h"

#include <ATen/Context.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/resources.h"
#include "base/status.h"
#include "device/mps/autorelease_pool.h"
#include "device/mps/environment.h"
#include "device/mps/graph_cache.h"
#include "device/owner_thread.h"
#include "device/step_program.h"

namespace permafrost::device {
namespace {

using Calls = GraphCacheCalls<at::MPSHooksInterface>;

const at::MPSHooksInterface& Hooks() { return at::detail::getMPSHooks(); }
int64_t Bytes(size_t bytes) { return static_cast<int64_t>(bytes); }

// Returns what the allocator holds, free blocks included; nullopt: it does not tell.
std::optional<int64_t> ReservedBytes() {
  auto* const allocator = dynamic_cast<c10::DeviceAllocator*>(Hooks().getMPSDeviceAllocator());
  if (allocator == nullptr) return std::nullopt;
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return allocator->getDeviceStats(0).reserved_bytes[kAll].current;
}

class MpsBackend final : public Backend {
 public:
  MpsBackend(MpsEnvironment environment, double threshold)
      : recommended_max_(Bytes(Hooks().getRecommendedMaxMemory())) {
    threshold_ = DriverThreshold(static_cast<int64_t>(threshold * static_cast<double>(recommended_max_)));
    const absl::MutexLock lock(&mutex_);
    state_.settings = std::move(environment.settings);
    state_.settings.push_back({"mps-driver-threshold", absl::StrCat(threshold)});
    state_.warnings = std::move(environment.warnings);
    state_.memory.recommended_max = recommended_max_;
    state_.no_graph_entries_reason = "no job has run yet";
    for (const auto& [reason, name] : kEmptyReasonNames.rows) state_.empty_caches[std::string(name)] = 0;
  }

  DeviceKind kind() const override { return DeviceKind::kMps; }
  c10::Device device() const override { return {c10::kMPS, 0}; }
  void Synchronize() const override {
    const absl::Status mine = owner_.Claim("Synchronize");
    TORCH_CHECK(mine.ok(), "mps: ", std::string(mine.message()));
    Hooks().deviceSynchronize();
  }
  absl::Status CheckCapture() const override { return absl::OkStatus(); }
  bool records() const override { return false; }
  bool keeps_graphs() const override { return true; }
  std::unique_ptr<Capturer> MakeCapturer() const override { return std::make_unique<ShapedCapturer>(device()); }

  absl::Status Enter() const override {
    PF_RETURN_IF_ERROR(owner_.Claim("mps"));
    if (entries_) return absl::OkStatus();
    const AutoreleasePool pool;
    entries_.emplace(ProbeOfMps());
    Publish();
    return absl::OkStatus();
  }
  absl::Status Within(const std::function<absl::Status()>& step) const override {
    PF_RETURN_IF_ERROR(owner_.Claim("a step"));
    const AutoreleasePool pool;
    return step();
  }
  absl::StatusOr<bool> EndStep() const override {
    PF_RETURN_IF_ERROR(owner_.Claim("EndStep"));
    return threshold_.Due(Publish());
  }
  absl::Status EmptyCaches(EmptyReason reason) const override {
    PF_RETURN_IF_ERROR(owner_.Claim("EmptyCaches"));
    // Freed graphs and blocks must not be in use: emptyCache beside a running operator is a use after free.
    Hooks().deviceSynchronize();
    const bool graphs_only = reason == EmptyReason::kNever || reason == EmptyReason::kClearPerStep;
    if (!graphs_only || !Calls::Clear(Hooks())) Hooks().emptyCache();
    if (reason == EmptyReason::kThreshold) threshold_.OnEmptied();
    {
      const absl::MutexLock lock(&mutex_);
      ++state_.empty_caches[std::string(kEmptyReasonNames.Name(reason))];
    }
    Publish();
    return absl::OkStatus();
  }
  void SetGraphsFrozen(bool frozen) const override {
    if (frozen) {
      Calls::Freeze(Hooks());
    } else {
      Calls::Thaw(Hooks());
    }
  }

  // The peak is the largest of what was published or asked for: MPS keeps none.
  StorageUse storage() const override {
    if (owner_.IsThis()) Publish();
    const absl::MutexLock lock(&mutex_);
    return {.bytes = state_.memory.allocated.value_or(0), .peak_bytes = peak_, .allocations = 0};
  }
  void RestartStoragePeak() const override {
    const absl::MutexLock lock(&mutex_);
    peak_ = 0;
  }
  DeviceState Observe() const override {
    DeviceState state;
    {
      const absl::MutexLock lock(&mutex_);
      state = state_;
    }
    state.memory.resident = Bytes(ResidentBytes());
    return state;
  }
  int64_t memory_bytes() const override { return recommended_max_; }

 private:
  // Reads what only the device's thread may read. Returns the driver's bytes.
  int64_t Publish() const {
    DeviceMemory memory{.allocated = Bytes(Hooks().getCurrentAllocatedMemory()),
                        .reserved = ReservedBytes(),
                        .driver = Bytes(Hooks().getDriverAllocatedMemory()),
                        .recommended_max = recommended_max_};
    const std::optional<int64_t> entries = entries_ ? entries_->Count() : std::nullopt;
    const int64_t driver = *memory.driver;
    const absl::MutexLock lock(&mutex_);
    peak_ = std::max(peak_, *memory.allocated);
    state_.memory = memory;
    state_.graph_entries = entries;
    if (entries_) state_.no_graph_entries_reason = entries_->reason();
    return driver;
  }

  const int64_t recommended_max_;
  mutable OwnerThread owner_;
  // Belongs to the owner.
  mutable DriverThreshold threshold_{0};
  mutable std::optional<GraphEntries> entries_;  // once it has entered

  mutable absl::Mutex mutex_;
  mutable DeviceState state_ ABSL_GUARDED_BY(mutex_);
  mutable int64_t peak_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace

bool HasMps() { return at::hasMPS(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeMpsBackend(const BackendOptions& options) {
  PF_ASSIGN_OR_RETURN(MpsEnvironment environment,
                      ReadMpsEnvironment([](const std::string& name) -> std::optional<std::string> {
                        const char* const value = std::getenv(name.c_str());
                        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
                      }));
  return std::make_unique<MpsBackend>(std::move(environment), options.mps_driver_threshold);
}

namespace {

class ShapedProgram final : public graphcache::Executable {
 public:
  ShapedProgram(const StepProgram& program, Staging& staging) : program_(program), staging_(staging) {}
  absl::StatusOr<graphcache::StepResult> Replay(const graphcache::StepInputs& inputs) override {
    return std::make_shared<const graphcache::StepOutputs>(program_.run(staging_.Upload(inputs)));
  }
  // The bytes that the backend keeps for this shape are not known here.
  int64_t bytes() const override { return static_cast<int64_t>(sizeof(*this)); }

 private:
  const StepProgram& program_;
  Staging& staging_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> ShapedCapturer::Capture(
    const StepProgram& program, const graphcache::StepInputs& /*first*/, const graphcache::StepInputs& /*second*/) {
  return std::make_unique<ShapedProgram>(program, staging_);
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> ShapedCapturer::CaptureDynamic(const StepProgram& /*program*/,
                                                                                       const ProbeInputs& /*probes*/) {
  return absl::UnimplementedError("this device records no steps: its executables are of one shape each");
}

std::vector<at::Tensor> ShapedCapturer::RunEager(const StepProgram& program, const graphcache::StepInputs& inputs) {
  return program.run(staging_.Upload(inputs));
}

absl::Status ShapedCapturer::WarmUp(const StepProgram& program, const graphcache::StepInputs& inputs) {
  const SavedState saved(program.state);
  RunEager(program, inputs);
  return absl::OkStatus();
}

}  // namespace permafrost::device
