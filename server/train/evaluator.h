// One pass over a split without training.
// Threads: the device thread.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "train/step_engine.h"
#include "train/task.h"

namespace permafrost::train {

struct EvaluationOptions {
  nn::Metric metric = nn::Metric::kMae;
  int64_t step = 0;  // optimizer steps done
  bool keep_predictions = false;
};

// `keep_going` is asked before each batch; false ends with Cancelled.
absl::StatusOr<Evaluation> Evaluate(StepEngine& engine, Task& task, data::Split split, const EvaluationOptions& options,
                                    const std::function<bool()>& keep_going);

// The metric over all rows of a split. predictions: [rows, outputs]; labels: [rows, targets], NaN where missing.
double ComputeMetric(nn::Metric metric, std::span<const float> predictions, std::span<const float> labels,
                     int64_t outputs);

}  // namespace permafrost::train
