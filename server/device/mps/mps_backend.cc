#include "device/mps/mps_backend.h"

#include <ATen/Context.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/resources.h"
#include "base/status.h"
#include "device/backend.h"
#include "device/mps/graph_cache.h"
#include "device/step_program.h"

#ifdef __APPLE__
// Functions of libobjc's runtime, which has no header for them. Source: clang's documentation of automatic reference
// counting, "Runtime support".
extern "C" void* objc_autoreleasePoolPush(void);
extern "C" void objc_autoreleasePoolPop(void* pool);
#endif

namespace permafrost::device {
namespace {

thread_local int open_pools = 0;

void* Push() {
#ifdef __APPLE__
  return objc_autoreleasePoolPush();
#else
  return nullptr;
#endif
}

void Pop([[maybe_unused]] void* pool) {
#ifdef __APPLE__
  objc_autoreleasePoolPop(pool);
#endif
}

}  // namespace

AutoreleasePool::AutoreleasePool() : pool_(Push()) { ++open_pools; }

AutoreleasePool::~AutoreleasePool() {
  Pop(pool_);
  --open_pools;
}

int AutoreleasePool::depth() { return open_pools; }

namespace {

// The defaults of ATen/mps/MPSAllocator.h, as shares of the recommended maximum: default_high_watermark_ratio,
// default_high_watermark_upper_bound, default_low_watermark_ratio (of unified memory).
constexpr double kHighWatermark = 1.7, kMostWatermark = 2.0, kLowWatermark = 1.4;
constexpr char kHigh[] = "PYTORCH_MPS_HIGH_WATERMARK_RATIO", kLow[] = "PYTORCH_MPS_LOW_WATERMARK_RATIO";

struct Switch {
  const char* name;
  const char* warning;  // logged if the value is neither empty nor 0
};
constexpr std::array<Switch, 6> kSwitches{
    {{"PYTORCH_ENABLE_MPS_FALLBACK",
      "operators that MPS lacks run on the CPU without a word, and each waits for the device; unset it, so that a "
      "missing operator fails the job and is known"},
     {"PYTORCH_MPS_PREFER_METAL",
      "matrix products leave MPSGraph, so that counts of its entries are others than those that Permafrost plans with"},
     {"PYTORCH_MPS_FAST_MATH", "sums of the loss and comparisons with the CPU lose digits"},
     {"PYTORCH_DEBUG_MPS_ALLOCATOR", "libtorch prints what it allocates"},
     {"PYTORCH_MPS_LOG_PROFILE_INFO", "libtorch prints what it runs, and waits for it"},
     {"PYTORCH_MPS_TRACE_SIGNPOSTS", "libtorch traces what it runs, which slows it down"}}};

struct Ratio {
  double value = 0;
  bool given = false;
};

absl::StatusOr<Ratio> ReadRatio(const Environment& environment, const char* name, double fallback, double most) {
  const std::optional<std::string> text = environment(name);
  if (!text) return Ratio{.value = fallback};
  double value = -1;
  // NaN fails these comparisons, so it is refused too.
  const bool ok = absl::SimpleAtod(*text, &value) && value >= 0 && value <= most;
  if (!ok) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, ": \"", *text, "\" is no ratio that MPS takes: accepted: 0 to ", most, ", or unset"));
  }
  return Ratio{.value = value, .given = true};
}

}  // namespace

absl::StatusOr<MpsEnvironment> ReadMpsEnvironment(const Environment& environment) {
  MpsEnvironment out;
  for (const Switch& s : kSwitches) {
    const std::optional<std::string> value = environment(s.name);
    if (!value) continue;
    out.settings.push_back({s.name, *value});
    if (*value != "0" && !value->empty()) out.warnings.push_back(absl::StrCat(s.name, "=", *value, ": ", s.warning));
  }
  PF_ASSIGN_OR_RETURN(const Ratio high, ReadRatio(environment, kHigh, kHighWatermark, kMostWatermark));
  PF_ASSIGN_OR_RETURN(const Ratio low, ReadRatio(environment, kLow, kLowWatermark, kMostWatermark));
  // 0 means no limit. libtorch then compares with the largest ratio.
  const double limit = high.value > 0 ? high.value : kMostWatermark;
  if (low.value > limit) {
    return absl::FailedPreconditionError(
        absl::StrCat(kLow, low.given ? " is " : " is not set and is taken as ", low.value, ", above ", kHigh, " (",
                     limit, "), which MPS refuses at its first allocation: accepted: 0 to ", limit));
  }
  if (high.given && high.value == 0) {
    out.warnings.push_back(
        absl::StrCat(kHigh, "=0: memory has no limit, and the whole machine may run out of it before a job fails"));
  }
  out.settings.push_back({kHigh, absl::StrCat(high.value)});
  out.settings.push_back({kLow, absl::StrCat(low.value)});
  return out;
}

namespace {

using Calls = GraphCacheCalls<at::MPSHooksInterface>;

const at::MPSHooksInterface& Hooks() { return at::detail::getMPSHooks(); }
int64_t Bytes(size_t bytes) { return static_cast<int64_t>(bytes); }

// Returns the bytes that the allocator holds, including free blocks. Returns nullopt if the allocator does not report
// the number.
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
    // No operator may still use a graph or block that emptyCache frees, so the device must be idle first.
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

  // MPS keeps no peak. The peak is therefore the largest use that this backend has published or returned here.
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
  // Publishes the values that only the device's thread may read. Returns the driver's bytes.
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
  // Only the owner thread uses the next two members.
  mutable DriverThreshold threshold_{0};
  mutable std::optional<GraphEntries> entries_;  // set by the first Enter

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
  // Returns the size of this object alone, since the bytes that the backend keeps for this shape are not known here.
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
