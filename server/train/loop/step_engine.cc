#include "train/loop/step_engine.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "train/planning/batch_schedule.h"

namespace permafrost::train {
namespace {

// Other threads see entries that are at most so old: copying them costs with their number.
constexpr std::chrono::milliseconds kEntriesInterval(500);

// Emptied caches that the log tells of; more of them are counted only.
constexpr int64_t kLoggedThresholds = 3;

graphcache::GraphCacheSetup SetupOf(const spec::TrainOptions& options, const Task& task, RunContext& context) {
  return {.options = options.graph_cache,
          .batch_size = (GraphsPerBatch(options, task.sizes()) + options.replicas - 1) / options.replicas,
          .has_partial = HavePartialBatches(options),
          .sizes = task.sizes(),
          .plan = task.plan(),
          .of_seeds = options.model.level == spec::ModelLevel::kNode,
          .pads = task.pads(),
          .now = [] { return absl::Now(); },
          .elapsed = [clock = Stopwatch()] { return clock.Elapsed(); },
          .log = [&context](std::string_view line,
                            bool warning) { context.Log(warning ? LogLevel::kWarning : LogLevel::kInfo, line); },
          .log_error = [&context](std::string_view line) { context.Log(LogLevel::kError, line); }};
}

}  // namespace

StepEngine::StepEngine(const spec::TrainOptions& options, Task& task, nn::Optimizer& optimizer,
                       const device::Backend& backend, RunContext& context, collective::Group* group)
    : backend_(backend),
      context_(context),
      task_(task),
      group_(group),
      losses_(backend.device()),
      eval_losses_(backend.device()),
      eval_errors_(backend.device()),
      train_(TrainProgram(task, optimizer, LossOf(options, backend.device()), losses_,
                          [this](int phase) { OnPhase(phase); })),
      eval_(EvalProgram(task, LossOf(options, backend.device()), eval_losses_, eval_errors_)),
      compiler_(
          train_, eval_, task, backend, [&context](std::string_view line) { context.Log(LogLevel::kWarning, line); },
          group),
      cache_(SetupOf(options, task, context), compiler_) {
  TellTask();
  AnnouncePolicyOnDevice();
}

StepEngine::~StepEngine() {
  if (told_sealed_) backend_.SetGraphsFrozen(false);
}

void StepEngine::TellTask() {
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) task_.Prepare(mode, cache_.of(mode).dynamic, cache_.ladder(mode));
}

absl::Status StepEngine::Train(HostBatch& batch, int64_t step, PhaseSeconds& seconds) {
  phase_seconds_ = &seconds;
  const collective::Scope shared(group_);
  return Run(Mode::kTrain, batch, step).status();
}

absl::StatusOr<at::Tensor> StepEngine::Evaluate(HostBatch& batch, int64_t step) {
  PF_ASSIGN_OR_RETURN(const graphcache::StepResult result, Run(Mode::kEval, batch, step));
  return result->tensors.at(0);
}

void StepEngine::OnPhase(int phase) {
  if (phase_seconds_ == nullptr) return;  // a warm-up, which is no step
  const Clock::time_point now = Clock::now();
  const double seconds = std::chrono::duration<double>(now - std::exchange(phase_begin_, now)).count();
  switch (phase) {
    case kForward:
      phase_seconds_->forward += seconds;
      break;
    case kBackward:
      phase_seconds_->backward += seconds;
      break;
    case kOptimizer:
      phase_seconds_->optimizer += seconds;
      break;
    default:  // kBegin
      break;
  }
}

void StepEngine::Report(bool with_entries) {
  TellTask();
  const Clock::time_point now = Clock::now();
  std::shared_ptr<const std::vector<graphcache::EntryInfo>> entries;
  if (with_entries || now >= next_entries_) {
    entries = std::make_shared<const std::vector<graphcache::EntryInfo>>(cache_.entries());
    next_entries_ = now + kEntriesInterval;
  }
  context_.OnGraphCache(cache_.snapshot(), std::move(entries));
}

// The functions below work between steps for a device that compiles by shape and keeps what it compiled (MPS): the
// graph cache bounds the shapes that reach it, and policies that keep nothing have to empty the device itself.

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
