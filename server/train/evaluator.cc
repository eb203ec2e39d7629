#include "train/evaluator.h"

#include <ATen/ATen.h>

#include <vector>

#include "base/status.h"
#include "nn/metrics.h"

namespace permafrost::train {
namespace {

// Appends the rows of a prediction that belong to the batch's ids.
void Keep(const at::Tensor& prediction, const HostBatch& batch, std::vector<float>& out) {
  const auto rows = batch.prediction_rows();
  const auto ids = static_cast<int64_t>(batch.ids().size());
  // All of it first: a part would be another shape on the device, for each number of ids.
  const at::Tensor all = prediction.to(at::kCPU);
  const at::Tensor host = (rows.empty() ? all.narrow(0, 0, ids) : all).contiguous();
  const float* values = host.const_data_ptr<float>();
  if (rows.empty()) {
    out.insert(out.end(), values, values + host.numel());
    return;
  }
  const int64_t width = host.size(1);
  for (const int64_t row : rows) out.insert(out.end(), values + row * width, values + (row + 1) * width);
}

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const EvaluationSteps& steps, Task& task, data::Split split,
                                    const EvaluationOptions& options, const std::function<bool()>& keep_going) {
  PF_ASSIGN_OR_RETURN(std::optional<Evaluation> whole, task.EvaluateWhole(split, options.keep_predictions, keep_going));
  if (whole) return *std::move(whole);
  const std::unique_ptr<BatchStream> batches = task.EvalBatches(split);
  // The mean absolute error is summed on the device; other metrics need all predictions together.
  const bool sums = options.metrics == std::vector{spec::Metric::kMae}, keep = options.keep_predictions || !sums;
  Evaluation result;
  std::vector<float> labels;
  if (keep) {
    const auto values = static_cast<size_t>(task.size(split) * task.num_outputs());
    result.predictions.reserve(values);
    if (!sums) labels.reserve(values);
  }
  steps.losses.Reset();
  steps.errors.Reset();
  while (true) {
    PF_ASSIGN_OR_RETURN(HostBatch * host, batches->Next());
    if (host == nullptr) break;
    if (!keep_going()) return absl::CancelledError("evaluation stopped");
    PF_ASSIGN_OR_RETURN(const at::Tensor prediction, steps.run(*host));
    if (options.on_batch) options.on_batch(*batches);
    if (!keep) continue;
    Keep(prediction, *host, result.predictions);
    if (!sums) labels.insert(labels.end(), host->labels().begin(), host->labels().end());
    result.ids.insert(result.ids.end(), host->ids().begin(), host->ids().end());
  }
  result.loss = steps.losses.Mean();
  result.has_labels = steps.losses.Count() > 0;
  for (const spec::Metric metric : options.metrics) {
    result.metrics.push_back(metric == spec::Metric::kMae ? steps.errors.Mean()
                                                          : nn::ComputeMetric(metric, options.loss, result.predictions,
                                                                              labels, task.num_outputs()));
  }
  // They were kept for the metrics alone.
  if (!options.keep_predictions) {
    result.ids = std::vector<uint32_t>();
    result.predictions = std::vector<float>();
  }
  return result;
}

absl::StatusOr<Evaluation> Evaluate(StepEngine& engine, Task& task, data::Split split, const EvaluationOptions& options,
                                    const std::function<bool()>& keep_going) {
  const auto run = [&](HostBatch& batch) -> absl::StatusOr<at::Tensor> {
    PF_ASSIGN_OR_RETURN(at::Tensor prediction, engine.Evaluate(batch, options.step));
    engine.Report();
    return prediction;
  };
  return Evaluate({.run = run, .losses = engine.eval_losses(), .errors = engine.eval_errors()}, task, split, options,
                  keep_going);
}

}  // namespace permafrost::train
