// Trials of a program on small artificial batches on the CPU: they tell what a step costs, and whether batches may be
// padded.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/step.h"
#include "nn/models/model.h"
#include "spec/train_options.h"
#include "train/planning/run_size.h"
#include "train/tasks/bound_program.h"
#include "train/tasks/program_cost.h"
#include "train/tasks/program_model.h"

namespace permafrost::train {

// Estimates the memory for a training step of `largest`, padding included, and for its recording. If a program refuses
// a small batch, or reads more than a bound (program_cost.h), activations are 0. Errors: as MakeModel; InvalidArgument
// for a program that predicts something else than is wanted.
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

// How a program runs on padded batches, where padding rows are run like real ones.
struct ProgramPadding {
  std::string refusal;  // why its batches are not padded, for people; empty: they may be
  ProgramNorms norms;

  std::optional<ProgramNorms> if_accepted() const { return refusal.empty() ? std::optional(norms) : std::nullopt; }
  // Tells the job's user why its batches are not padded, in one line. Empty: they are.
  std::string Note() const;
};

// Runs both forms of a program on a batch as it is and on the same batch padded, twice with other values in the
// padding. Predictions, losses, gradients and buffers must not depend on those values by a single bit, and must equal
// those of the batch as it is, up to rounding. So no real row reads a padding row, and no result depends on how many
// rows there are. Two things are not compared: on a block with padding between its rows, a training step that draws
// random numbers, since they are drawn by row; and anything that only other values or sizes would show. Errors: as
// MakeModel.
absl::StatusOr<ProgramPadding> FindPadding(const spec::TrainOptions& options, const nn::GraphModelOptions& model,
                                           int64_t self_loops, std::string_view prefix);
absl::StatusOr<ProgramPadding> FindPadding(const spec::TrainOptions& options, const nn::NodeModelOptions& model,
                                           const NodeProgramData& data, std::string_view prefix);

}  // namespace permafrost::train
