// The training and the evaluation step of a job, as programs that a device can capture.
// Threads: the device thread.
#pragma once

#include <functional>

#include "device/step_program.h"
#include "nn/optimizer.h"
#include "spec/loss.h"
#include "spec/model.h"
#include "train/error_sums.h"
#include "train/task.h"

namespace permafrost::train {

// Moments of a training step that on_phase is told of: its begin, and the end of each phase.
enum Phase : int { kBegin, kForward, kBackward, kOptimizer };

struct LossOptions {
  spec::Loss loss = spec::Loss::kL1;
  at::Tensor class_weights;                         // undefined: all 1
  spec::Lowering lowering = spec::Lowering::kAuto;  // of the whole step, as precision
  spec::Precision precision = spec::Precision::kFloat32;
};

// The loss options of a job, on the device of its steps.
LossOptions LossOf(const spec::TrainOptions& options, c10::Device device);

// Forward, loss, backward, clipping, optimizer; the batch's loss is added to `losses`. Returns nothing. Borrows
// everything.
device::StepProgram TrainProgram(Task& task, nn::Optimizer& optimizer, const LossOptions& loss, ErrorSums& losses,
                                 std::function<void(int phase)> on_phase);

// Forward only; the batch's loss, and its absolute error where that is the loss's metric, are added to `losses` and
// `errors`. Returns the predictions [padded graphs, outputs]. Borrows everything.
device::StepProgram EvalProgram(Task& task, const LossOptions& loss, ErrorSums& losses, ErrorSums& errors);

}  // namespace permafrost::train
