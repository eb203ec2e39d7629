// Trials of a program on small artificial batches on the CPU: they tell what a step costs, and whether batches may be
// padded.
// Threads: safe anywhere.
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
  int64_t executable_bytes = 0;  // as device::ExecutableBytes
  // Mean values for each operator of a program; 0: not known, or no program; infinite: beyond the bound.
  double operator_values = 0;
};

// Returns how many threads libtorch's operators should use in a step, given their mean number of values. If they have
// few, threads wait longer than they work (bench/MEASUREMENTS.md, "From which size two threads pay"). An unknown
// number, 0, counts as few.
inline TorchThreads ThreadsFor(double operator_values) {
  constexpr double kSharedValues = 524'288;  // PyTorch's operators begin at 32,768
  return operator_values < kSharedValues ? TorchThreads::kOne : TorchThreads::kAll;
}

// The bytes of the tensors that a forward pass makes.
struct ForwardCost {
  double parameters = 0;         // their values, which are not among those bytes
  double once = 0, growing = 0;  // bytes that both batches make, and those that the second makes more
  int64_t operators = 0;         // 0: not known
  bool reads_too_much = false;   // more than 1 GiB: it was stopped
  int64_t columns = 0;           // of its prediction; 0: not known
  bool scores_pairs = false;     // whether it scores pairs itself, which cost what edges do

  // Returns the cost of a training step of `largest`, padding included: twice the forward pass.
  StepCost Step(const BatchShape& largest) const;
};

// Estimates the memory for a training step of `largest`, padding included, and for its recording. It is that of the
// step without fused regions, which takes no less. If a program refuses a small batch, or reads more than
// 1 GiB, activations are 0. Errors: as MakeModel; InvalidArgument for a program that predicts something else
// than is wanted.
absl::StatusOr<StepCost> CostOfStep(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                    const BatchShape& largest, std::string_view prefix);

// Measures a program on one large graph by runs on two small blocks. Errors: as CostOfStep.
absl::StatusOr<ForwardCost> MeasureNodeProgram(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                               const NodeProgramData& data, std::string_view prefix);

// Returns whether a job's batches are to be padded to a ladder of shapes. Where one executable serves every shape, they
// need not.
inline bool WantsPadding(const spec::PolicyOptions& policy, const MemoryLimits& limits) {
  return spec::WantsLadder(policy) && !(limits.records && spec::WantsDynamic(policy));
}

// The padding of a job's batches.
struct JobPadding {
  bool pads = true;  // whether batches may have more than the least padding
  std::optional<ProgramNorms>
      norms;         // of a program whose batches are padded, where padding rows are run like real ones
  std::string note;  // tells the job's user why a program's batches are not padded; empty: nothing
};

// Says whether a job's program runs its edge regions as one operator each.
struct JobFusion {
  bool fused = true;
  // Tells the job's user why nothing is fused, or why bfloat16 has no effect; empty: nothing to tell.
  std::string note;
};

// Runs the training and evaluation forms on a small batch, fused and not. Predictions, losses, gradients and buffers
// must agree up to rounding, or nothing is fused. On other devices than the CPU there are no regions
// (program/rewritings.h). Errors: as MakeModel.
absl::StatusOr<JobFusion> FusionOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                   int64_t self_loops, c10::Device device, std::string_view prefix);
absl::StatusOr<JobFusion> FusionOf(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                   const NodeProgramData& data, c10::Device device, std::string_view prefix);

// Our own models are padded. So is a program, if WantsPadding and if trials allow it: both forms run on a small batch
// with the least padding, and on that batch with 2,000 rows of padding, filled in two ways. Predictions, losses,
// gradients and buffers must be equal bit by bit for both fillings, and equal those of the least padding up to
// rounding. A program fails if a real row reads padding, or if a result depends on the number of rows. Two faults
// stay unseen. If a training step draws random numbers and padding lies between real rows, only the two fillings are
// compared, because numbers are drawn by row. And a fault may need other values or sizes than the trial's. A program is
// not padded if a trial reads more than 1 GiB, or if its features are wider than 4,096 columns. Errors: as MakeModel.
absl::StatusOr<JobPadding> PaddingOf(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                     int64_t self_loops, const MemoryLimits& limits, std::string_view prefix);
absl::StatusOr<JobPadding> PaddingOf(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                     const NodeProgramData& data, const MemoryLimits& limits, std::string_view prefix);

}  // namespace permafrost::train
