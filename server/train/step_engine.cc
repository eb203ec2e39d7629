#include "train/step_engine.h"

#include <ATen/ATen.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "train/batch_schedule.h"

namespace permafrost::train {
namespace {

// Other threads see entries that are at most so old: copying them costs with their number.
constexpr std::chrono::milliseconds kEntriesInterval(500);

graphcache::GraphCacheSetup SetupOf(const spec::TrainOptions& options, const Task& task, RunContext& context) {
  return {.options = options.graph_cache,
          .batch_size = GraphsPerBatch(options, task.sizes()),
          .has_partial = HavePartialBatches(options),
          .sizes = task.sizes(),
          .plan = task.plan(),
          .of_seeds = options.model.level == spec::ModelLevel::kNode,
          .now = [] { return absl::Now(); },
          .elapsed = [clock = Stopwatch()] { return clock.Elapsed(); },
          .log = [&context](std::string_view line,
                            bool warning) { context.Log(warning ? LogLevel::kWarning : LogLevel::kInfo, line); },
          .log_error = [&context](std::string_view line) { context.Log(LogLevel::kError, line); }};
}

}  // namespace

StepEngine::StepEngine(const spec::TrainOptions& options, Task& task, nn::Optimizer& optimizer,
                       const device::Backend& backend, RunContext& context)
    : backend_(backend),
      context_(context),
      task_(task),
      losses_(backend.device()),
      eval_losses_(backend.device()),
      eval_errors_(backend.device()),
      train_(TrainProgram(task, optimizer, LossOf(options, backend.device()), losses_,
                          [this](int phase) { OnPhase(phase); })),
      eval_(EvalProgram(task, LossOf(options, backend.device()), eval_losses_, eval_errors_)),
      compiler_(train_, eval_, task, backend,
                [&context](std::string_view line) { context.Log(LogLevel::kWarning, line); }),
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

}  // namespace permafrost::train
