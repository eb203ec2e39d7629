// One pass over a split without training.
// Threads: the device thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "train/error_sums.h"
#include "train/step_engine.h"
#include "train/task.h"

namespace permafrost::train {

struct EvaluationOptions {
  spec::Loss loss = spec::Loss::kL1;
  std::vector<spec::Metric> metrics = {spec::Metric::kMae};
  int64_t step = 0;  // optimizer steps done
  bool keep_predictions = false;
  // After each batch of those that are streamed; none: nobody asks.
  std::function<void(const BatchStream&)> on_batch = nullptr;
};

// Runs a batch of an evaluation, and holds the sums of its steps.
struct EvaluationSteps {
  std::function<absl::StatusOr<at::Tensor>(HostBatch& batch)> run;  // its prediction, padded
  ErrorSums& losses;
  ErrorSums& errors;  // absolute ones
};

// `keep_going` is asked before each batch; false ends with Cancelled.
absl::StatusOr<Evaluation> Evaluate(const EvaluationSteps& steps, Task& task, data::Split split,
                                    const EvaluationOptions& options, const std::function<bool()>& keep_going);
// By the engine of a run.
absl::StatusOr<Evaluation> Evaluate(StepEngine& engine, Task& task, data::Split split, const EvaluationOptions& options,
                                    const std::function<bool()>& keep_going);

}  // namespace permafrost::train
