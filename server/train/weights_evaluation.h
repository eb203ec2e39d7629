// One pass of a job's weights over rows of a dataset, beside or after the run that made them.
// Threads: pure functions; on devices of one thread, that one.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/statusor.h"
#include "device/backend.h"
#include "train/job_plan.h"
#include "train/runner.h"

namespace permafrost::train {

// Returns the options of a job, made for the dataset `trained`, as a task of an evaluation needs them: there is nothing
// to train, resume or keep.
spec::TrainOptions OptionsOfEvaluation(spec::TrainOptions options, const data::ImportedSummary& trained);

// As Runner::EvaluateWeights.
absl::StatusOr<RowsEvaluation> EvaluateWeights(const EvaluateRequest& request, const device::Backend& backend,
                                               int threads, const PlanContext& context,
                                               const std::function<bool(int64_t done, int64_t total)>& on_progress);

}  // namespace permafrost::train
