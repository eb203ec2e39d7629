// Evaluates a run's model on a split, or a job's weights on rows of a dataset, during or after the run that made the
// weights.
// Threads: the device thread, if the device has one.
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

// Turns the options of a job into options for a run that only evaluates: it trains, resumes and keeps nothing.
// `trained` describes the dataset that the job was trained on.
spec::TrainOptions OptionsOfEvaluation(spec::TrainOptions options, const data::ImportedSummary& trained);

// Implements Runner::EvaluateWeights, with its contract.
absl::StatusOr<RowsEvaluation> EvaluateWeights(const EvaluateRequest& request, const device::Backend& backend,
                                               int threads, const PlanContext& context,
                                               const std::function<bool(int64_t done, int64_t total)>& on_progress);

struct EvaluationOptions {
  spec::Loss loss = spec::Loss::kL1;
  std::vector<spec::Metric> metrics = {spec::Metric::kMae};
  int64_t step = 0;  // optimizer steps done
  bool keep_predictions = false;
  // The ranks that share the evaluation. Each rank evaluates a part of the batches, and all ranks get the result for
  // all batches. Null if this is the only rank.
  collective::Group* group = nullptr;
  // Called after each batch of a stream; may be empty.
  std::function<void(const BatchStream&)> on_batch = nullptr;
};

// The step of an evaluation, and the sums over its steps.
struct EvaluationSteps {
  std::function<absl::StatusOr<at::Tensor>(HostBatch& batch)> run;  // returns the batch's padded prediction
  ErrorSums& losses;
  ErrorSums& errors;  // sum of absolute errors
};

// Evaluates a split in one pass. Calls `keep_going` before each batch; false ends it with Cancelled.
absl::StatusOr<Evaluation> Evaluate(const EvaluationSteps& steps, Task& task, data::Split split,
                                    const EvaluationOptions& options, const std::function<bool()>& keep_going);
// Evaluates with the engine of a run.
absl::StatusOr<Evaluation> Evaluate(StepEngine& engine, Task& task, data::Split split, const EvaluationOptions& options,
                                    const std::function<bool()>& keep_going);

}  // namespace permafrost::train
