// The training and the evaluation step of a job, as programs that a device can capture.
// Threads: the device thread.
#pragma once

#include <functional>

#include "device/step_program.h"
#include "nn/config.h"
#include "nn/gine.h"
#include "nn/optimizer.h"
#include "train/error_sums.h"

namespace permafrost::train {

// Phases of a training step, told to on_phase as each ends.
enum Phase : int { kForward, kBackward, kOptimizer };

// Forward, loss, backward, clipping, optimizer; the batch's loss is added to `losses`. Returns nothing. Borrows
// everything.
device::StepProgram TrainProgram(nn::Gine& model, nn::Optimizer& optimizer, nn::Loss loss, ErrorSums& losses,
                                 std::function<void(int phase)> on_phase);

// Forward only; the batch's loss and absolute error are added to `losses` and `errors`. Returns the predictions
// [padded graphs, targets]. Borrows everything.
device::StepProgram EvalProgram(nn::Gine& model, nn::Loss loss, ErrorSums& losses, ErrorSums& errors);

}  // namespace permafrost::train
