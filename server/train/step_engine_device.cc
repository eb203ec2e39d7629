// The part of a step engine that works between steps for a device that compiles by shape and keeps what it compiled
// (MPS): the graph cache bounds the shapes that reach it, and policies that keep nothing have to empty the device
// itself.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/step_engine.h"

namespace permafrost::train {
namespace {

// Emptied caches that the log tells of; more of them are counted only.
constexpr int64_t kLoggedThresholds = 3;

}  // namespace

absl::StatusOr<graphcache::StepResult> StepEngine::Run(Mode mode, HostBatch& batch, int64_t step) {
  graphcache::StepResult result;
  const absl::Status ran = backend_.Within([&]() -> absl::Status {
    PF_ASSIGN_OR_RETURN(result, cache_.Run(mode, batch, step));
    return absl::OkStatus();
  });
  phase_seconds_ = nullptr;
  PF_RETURN_IF_ERROR(ran);
  PF_RETURN_IF_ERROR(EndStepOnDevice());
  return result;
}

absl::Status StepEngine::CaptureNext(int64_t step) {
  PF_RETURN_IF_ERROR(backend_.Within([&] { return cache_.CaptureNext(step); }));
  TellSealed();
  return absl::OkStatus();
}

absl::Status StepEngine::Apply(const graphcache::Command& command, int64_t step) {
  const spec::Policy before = cache_.options().policy;
  if (command.kind == graphcache::CommandKind::kClear) PF_RETURN_IF_ERROR(EmptyDevice(EmptyReason::kCommand));
  PF_RETURN_IF_ERROR(backend_.Within([&] { return cache_.Apply(command, step); }));
  TellSealed();
  if (cache_.options().policy != before) AnnouncePolicyOnDevice();
  return absl::OkStatus();
}

absl::Status StepEngine::EndStepOnDevice() {
  PF_ASSIGN_OR_RETURN(const bool over_threshold, backend_.EndStep());
  if (!backend_.keeps_graphs()) return absl::OkStatus();
  const spec::Policy policy = cache_.options().policy;
  if (spec::KeepsNothing(policy)) {
    return EmptyDevice(policy == spec::Policy::kNever ? EmptyReason::kNever : EmptyReason::kClearPerStep);
  }
  if (over_threshold) {
    const double before = static_cast<double>(backend_.Observe().memory.driver.value_or(0)) / 1e6;
    PF_RETURN_IF_ERROR(EmptyDevice(EmptyReason::kThreshold));
    cache_.OnDeviceEmptied();
    if (++thresholds_ <= kLoggedThresholds) {
      const double after = static_cast<double>(backend_.Observe().memory.driver.value_or(0)) / 1e6;
      context_.Log(
          LogLevel::kWarning,
          absl::StrFormat("the device's driver holds %.0f MB, its threshold: the caches are emptied, %.0f MB "
                          "are left, and what is planned is captured again before the next step%s",
                          before, after, thresholds_ == kLoggedThresholds ? "; others of this kind are counted" : ""));
    }
  }
  TellSealed();
  return absl::OkStatus();
}

// Frozen graphs could not be compiled again after it.
absl::Status StepEngine::EmptyDevice(EmptyReason reason) {
  if (std::exchange(told_sealed_, false)) backend_.SetGraphsFrozen(false);
  return backend_.EmptyCaches(reason);
}

void StepEngine::TellSealed() {
  const bool sealed = cache_.sealed();
  if (std::exchange(told_sealed_, sealed) != sealed) backend_.SetGraphsFrozen(sealed);
}

void StepEngine::AnnouncePolicyOnDevice() {
  if (!backend_.keeps_graphs()) return;
  const spec::PolicyOptions& options = cache_.options();
  const std::string device(kDeviceNames.Name(backend_.kind()));
  if (spec::KeepsNothing(options.policy)) {
    context_.Log(LogLevel::kInfo, absl::StrCat("policy ", AbslView(spec::kPolicyNames.Name(options.policy)),
                                               ": the caches of ", device, " are emptied after each step"));
    return;
  }
  const bool compiles = options.on_miss == spec::OnMiss::kEager || options.on_miss == spec::OnMiss::kTransient;
  if (options.policy == spec::Policy::kFreeze && compiles && !spec::WantsLadder(options)) {
    context_.Log(LogLevel::kWarning,
                 absl::StrCat("on_miss ", AbslView(spec::kOnMissNames.Name(options.on_miss)),
                              ": shapes that the frozen cache does not hold reach ", device,
                              ", which keeps what it compiles for them; on_miss pad keeps it flat"));
  }
}

}  // namespace permafrost::train
