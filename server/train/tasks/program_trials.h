// Trials of a program on small artificial batches on the CPU. They measure what a step costs, and decide whether
// batches may be padded and whether edge regions are fused.
// Threads: thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/operators.h"
#include "base/step.h"
#include "nn/models/model.h"
#include "spec/train_options.h"
#include "train/planning/run_size.h"
#include "train/tasks/bound_program.h"
#include "train/tasks/program_model.h"

namespace permafrost::train {

struct StepCost {
  nn::ModelCost model;
  int64_t executable_bytes = 0;  // same as device::ExecutableBytes
  // The mean number of values that an operator of the program processes. It is 0 if unknown or without a program, and
  // infinite if the program reads too much to be measured.
  double operator_values = 0;
};

// Returns how many threads libtorch's operators should use in a step. `operator_values` is StepCost::operator_values.
// If operators process few values, several threads wait longer than they work (bench/MEASUREMENTS.md, "From which
// size two threads pay"). The value 0, unknown, counts as few.
inline TorchThreads ThreadsFor(double operator_values) {
  constexpr double kSharedValues = 524'288;  // PyTorch's own threshold is 32,768
  return operator_values < kSharedValues ? TorchThreads::kOne : TorchThreads::kAll;
}

// The cost of a forward pass of a program, measured on two small batches.
struct ForwardCost {
  double parameters = 0;  // number of parameter values; `once` does not include them
  // Bytes of the tensors that the pass makes. `once` counts the bytes that do not depend on the batch. `growing`
  // counts the bytes that are proportional to the batch's size, measured on the first batch.
  double once = 0, growing = 0;
  int64_t operators = 0;        // 0 if not known
  bool reads_too_much = false;  // whether the pass read more than 1 GiB and was stopped
  int64_t columns = 0;          // columns of the prediction; 0 if not known
  bool scores_pairs = false;    // whether the program scores pairs; a pair then costs as much as an edge

  // Returns the cost of a training step on a batch of shape `largest`, padding included. It is twice that of the
  // forward pass.
  StepCost Step(const BatchShape& largest) const;
};

// Estimates the memory for a training step on a batch of shape `largest`, padding included, and for recording this
// step. The estimate assumes that no regions are fused, since a fused step takes no more. If a program refuses a
// small batch or reads more than 1 GiB, the estimated activations are 0. Errors: same as MakeModel; InvalidArgument
// if the shape of the program's prediction does not suit the job.
absl::StatusOr<StepCost> CostOfStep(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    const BatchShape& largest, std::string_view prefix);

// Measures a program on one large graph by runs on two small blocks. Errors: same as CostOfStep.
absl::StatusOr<ForwardCost> MeasureNodeProgram(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                               const NodeProgramData& data, std::string_view prefix);

// Returns whether a job's batches are to be padded to a ladder of shapes. Returns false if one executable serves
// every shape.
inline bool WantsPadding(const spec::PolicyOptions& policy, const MemoryLimits& limits) {
  return spec::WantsLadder(policy) && !(limits.records && spec::WantsDynamic(policy));
}

// The padding of a job's batches.
struct JobPadding {
  bool pads = true;  // whether batches may have more than the least padding
  // The rows of the batch norms of a program. Set if the program's batches are padded. Other operators of the program
  // process padding rows like real ones.
  std::optional<ProgramNorms> norms;
  std::string note;  // says why a program's batches are not padded, for the job's user; or empty
};

// Says whether each edge region of a job's program runs as one operator.
struct JobFusion {
  bool fused = true;
  // A line for the job's user: why nothing is fused, or why bfloat16 has no effect. Empty if neither applies.
  std::string note;
};

// Decides whether a job's program is fused. Runs the training and evaluation forms on a small batch, fused and
// unfused. If predictions, losses, gradients or buffers differ by more than rounding, nothing is fused. Regions exist
// only on the CPU (program/rewritings.h). Errors: same as MakeModel.
absl::StatusOr<JobFusion> FusionOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                   int64_t self_loops, c10::Device device, std::string_view prefix);
absl::StatusOr<JobFusion> FusionOf(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                   const NodeProgramData& data, c10::Device device, std::string_view prefix);

// Decides whether a job's batches are padded. Batches of our own models are always padded. Batches of a program are
// padded if WantsPadding is true and a trial succeeds. In the trial, the training and the evaluation form run on a
// small batch with the least padding. They also run twice on the same batch with 2,000 padding rows, each time with
// different values in these rows. Predictions, losses, gradients and buffers of the two padded runs must be
// bit-equal. Up to rounding, they must also equal the results with the least padding. So the trial fails if a real
// row reads padding, or if a result depends on the number of rows.
//
// The trial misses two kinds of fault. First, if a training step draws random numbers and padding lies between real
// rows, only the two runs with 2,000 padding rows are compared. Random numbers are drawn by row, so this padding
// shifts them. Second, some faults show only with values or sizes that the trial does not have.
//
// A program's batches are not padded if a trial reads more than 1 GiB, or if the features have more than 4,096
// columns. Errors: same as MakeModel.
absl::StatusOr<JobPadding> PaddingOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                     int64_t self_loops, const MemoryLimits& limits, std::string_view prefix);
absl::StatusOr<JobPadding> PaddingOf(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                     const NodeProgramData& data, const MemoryLimits& limits, std::string_view prefix);

}  // namespace permafrost::train
