// Evaluates without training: a run's model on a split, or a job's weights on rows of a dataset, beside or after the
// run that made them. Threads: the device thread, where the device has one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "collective/group.h"
#include "device/backend.h"
#include "train/loop/step_engine.h"
#include "train/planning/job_schedule.h"
#include "train/runner.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// Returns the options of a job, made for the dataset `trained`, as a task of an evaluation needs them: there is nothing
// to train, resume or keep.
spec::TrainOptions OptionsOfEvaluation(spec::TrainOptions options, const data::ImportedSummary& trained);

// Does what Runner::EvaluateWeights says.
absl::StatusOr<RowsEvaluation> EvaluateWeights(const EvaluateRequest& request, const device::Backend& backend,
                                               int threads, const PlanContext& context,
                                               const std::function<bool(int64_t done, int64_t total)>& on_progress);

struct EvaluationOptions {
  spec::Loss loss = spec::Loss::kL1;
  std::vector<spec::Metric> metrics = {spec::Metric::kMae};
  int64_t step = 0;  // optimizer steps done
  bool keep_predictions = false;
  // The ranks that share the evaluation, each a part of its batches; all come to the same result. nullptr: there are no
  // others.
  collective::Group* group = nullptr;
  // After each batch of those that are streamed; none: nobody asks.
  std::function<void(const BatchStream&)> on_batch = nullptr;
};

// Runs a batch of an evaluation, and holds the sums of its steps.
struct EvaluationSteps {
  std::function<absl::StatusOr<at::Tensor>(HostBatch& batch)> run;  // its prediction, padded
  ErrorSums& losses;
  ErrorSums& errors;  // absolute ones
};

// Passes once over a split. `keep_going` is asked before each batch; false ends with Cancelled.
absl::StatusOr<Evaluation> Evaluate(const EvaluationSteps& steps, Task& task, data::Split split,
                                    const EvaluationOptions& options, const std::function<bool()>& keep_going);
// Evaluates with the engine of a run.
absl::StatusOr<Evaluation> Evaluate(StepEngine& engine, Task& task, data::Split split, const EvaluationOptions& options,
                                    const std::function<bool()>& keep_going);

}  // namespace permafrost::train
