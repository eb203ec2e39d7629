// One training step: forward, loss, backward, optimizer. The piece that a graph cache captures whole.
// Threads: the device thread.
#pragma once

#include "nn/config.h"
#include "nn/gine.h"
#include "nn/graph_batch.h"
#include "nn/loss.h"
#include "nn/optimizer.h"
#include "train/runner.h"

namespace permafrost::train {

struct TrainStep {
  nn::Gine& model;
  nn::Optimizer& optimizer;
  nn::Loss loss;

  // Adds what each phase took to `seconds`. On asynchronous devices a phase is the time to enqueue it.
  nn::LossTerms Run(const nn::GraphBatch& batch, PhaseSeconds& seconds);
};

}  // namespace permafrost::train
