#include "train/step_engine.h"

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "base/status.h"

namespace permafrost::train {
namespace {

// How old what others see of the entries may be: copying them costs with their number.
constexpr absl::Duration kEntriesInterval = absl::Milliseconds(500);

class CachedBatch final : public graphcache::Batch {
 public:
  // `on_ready` is told when the batch is padded, right before the step runs.
  CachedBatch(HostBatch& host, const int64_t& step, c10::Device device, std::function<void()> on_ready)
      : host_(host), real_(host.real()), step_(step), device_(device), on_ready_(std::move(on_ready)) {}

  const BatchShape& real() const override { return real_; }
  BatchShape least_padded() const override { return host_.least_padded(); }
  absl::StatusOr<const graphcache::StepInputs*> PadTo(const BatchShape& shape) override {
    if (shape != host_.padded()) PF_RETURN_IF_ERROR(host_.Pad(shape));
    inputs_ = host_.Inputs(step_, device_);
    on_ready_();
    return &inputs_;
  }

 private:
  HostBatch& host_;
  const BatchShape real_;
  const int64_t& step_;
  const c10::Device device_;
  const std::function<void()> on_ready_;
  graphcache::StepInputs inputs_;
};

graphcache::GraphCacheSetup SetupOf(const TrainOptions& options, const Task& task, RunContext& context) {
  return {.options = options.graph_cache,
          .batch_size = options.batch_size,
          .sizes = task.sizes(),
          .plan = task.plan(),
          .now = [] { return absl::Now(); },
          .log = [&context](std::string_view line,
                            bool warning) { context.Log(warning ? LogLevel::kWarning : LogLevel::kInfo, line); }};
}

LossOptions LossOf(const TrainOptions& options, c10::Device device) {
  LossOptions loss{.loss = options.loss, .class_weights = {}};
  if (!options.class_weights.empty()) {
    loss.class_weights = at::tensor(options.class_weights, at::TensorOptions().dtype(at::kFloat)).to(device);
  }
  return loss;
}

}  // namespace

StepEngine::StepEngine(const TrainOptions& options, Task& task, nn::Optimizer& optimizer, c10::Device device,
                       RunContext& context)
    : device_(device),
      context_(context),
      losses_(device),
      eval_losses_(device),
      eval_errors_(device),
      train_(TrainProgram(task, optimizer, LossOf(options, device), losses_, [this](int phase) { OnPhase(phase); })),
      eval_(EvalProgram(task, LossOf(options, device), eval_losses_, eval_errors_)),
      compiler_(train_, eval_, task, device),
      cache_(SetupOf(options, task, context), compiler_) {}

absl::Status StepEngine::Train(HostBatch& batch, int64_t step, PhaseSeconds& seconds) {
  phase_seconds_ = &seconds;
  return Run(graphcache::Mode::kTrain, batch, step);
}

absl::StatusOr<at::Tensor> StepEngine::Evaluate(HostBatch& batch, int64_t step) {
  PF_RETURN_IF_ERROR(Run(graphcache::Mode::kEval, batch, step));
  return compiler_.outputs().at(0);
}

absl::Status StepEngine::Run(graphcache::Mode mode, HostBatch& batch, int64_t step) {
  // A capture is no phase of the step; the cache counts what it took.
  CachedBatch cached(batch, step, device_, [this] { phase_begin_ = Clock::now(); });
  return cache_.Run(mode, cached, step);
}

void StepEngine::OnPhase(int phase) {
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
    default:
      break;
  }
}

void StepEngine::Tell(bool with_entries) {
  const absl::Time now = absl::Now();
  std::shared_ptr<const std::vector<graphcache::EntryInfo>> entries;
  if (with_entries || now >= next_entries_) {
    entries = std::make_shared<const std::vector<graphcache::EntryInfo>>(cache_.entries());
    next_entries_ = now + kEntriesInterval;
  }
  context_.OnGraphCache(cache_.snapshot(), std::move(entries));
}

}  // namespace permafrost::train
