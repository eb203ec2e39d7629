// Trials of a program on small artificial batches on the CPU. They tell what a step costs, and whether batches may be
// padded.
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
// If operators have few values, threads wait longer than they work (bench/MEASUREMENTS.md, "From which size two
// threads pay"). An unknown number, 0, counts as few.
inline TorchThreads ThreadsFor(double operator_values) {
  constexpr double kSharedValues = 524'288;  // PyTorch's operators use several threads from 32,768 on
  return operator_values < kSharedValues ? TorchThreads::kOne : TorchThreads::kAll;
}

// The cost of a forward pass of a program, measured on two small batches.
struct ForwardCost {
  double parameters = 0;         // number of parameter values, which the bytes below leave out
  double once = 0, growing = 0;  // bytes of made tensors: independent of the batch, and added by the second batch
  int64_t operators = 0;         // 0 if not known
  bool reads_too_much = false;   // whether it read more than 1 GiB and was stopped
  int64_t columns = 0;           // columns of the prediction; 0 if not known
  bool scores_pairs = false;     // whether the program scores pairs; a pair then costs as much as an edge

  // Returns the cost of a training step on a batch of shape `largest`, padding included. It is twice that of the
  // forward pass.
  StepCost Step(const BatchShape& largest) const;
};

// Estimates the memory for a training step of `largest`, padding included, and for its recording. The estimate
// assumes a step without fused regions, which takes at least as much. If a program refuses a small batch or reads
// more than 1 GiB, the estimated activations are 0. Errors: same as MakeModel; InvalidArgument for a program whose
// prediction is not what the job needs.
absl::StatusOr<StepCost> CostOfStep(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    const BatchShape& largest, std::string_view prefix);

// Measures a program on one large graph by runs on two small blocks. Errors: same as CostOfStep.
absl::StatusOr<ForwardCost> MeasureNodeProgram(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                               const NodeProgramData& data, std::string_view prefix);

// Returns whether a job's batches are to be padded to a ladder of shapes. If one executable serves every shape,
// returns false.
inline bool WantsPadding(const spec::PolicyOptions& policy, const MemoryLimits& limits) {
  return spec::WantsLadder(policy) && !(limits.records && spec::WantsDynamic(policy));
}

// The padding of a job's batches.
struct JobPadding {
  bool pads = true;  // whether batches may have more than the least padding
  // Set for a program whose batches are padded: the rows of its batch norms. All other operators of the program
  // process padding rows like real ones.
  std::optional<ProgramNorms> norms;
  std::string note;  // says why a program's batches are not padded, for the job's user; or empty
};

// Says whether each edge region of a job's program runs as one operator.
struct JobFusion {
  bool fused = true;
  // Tells the job's user why nothing is fused, or why bfloat16 has no effect. Empty if there is nothing to tell.
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
// small batch with the least padding, and on the same batch with 2,000 padding rows. The padding rows are filled in
// two ways. Predictions, losses, gradients and buffers must be equal bit by bit for both fillings. They must also
// equal the results with the least padding, up to rounding. So the trial fails if a real row reads padding, or if a
// result depends on the number of rows.
//
// Two faults stay unseen. If a training step draws random numbers and padding lies between real rows, only the two
// fillings are compared, because numbers are drawn by row. A fault may also show only with values or sizes that the
// trial does not have.
//
// A program is not padded if a trial reads more than 1 GiB, or if its features have more than 4,096 columns. Errors:
// same as MakeModel.
absl::StatusOr<JobPadding> PaddingOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                     int64_t self_loops, const MemoryLimits& limits, std::string_view prefix);
absl::StatusOr<JobPadding> PaddingOf(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                     const NodeProgramData& data, const MemoryLimits& limits, std::string_view prefix);

}  // namespace permafrost::train
