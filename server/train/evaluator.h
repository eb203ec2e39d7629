// One pass over a split without training.
// Threads: the device thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "data/batch.h"
#include "train/step_engine.h"

namespace permafrost::train {

struct Evaluation {
  double loss = 0;  // mean over present labels; NaN where there are none
  double mae = 0;   // mean absolute error over present labels, in units of the label
  // The split's graphs with their predictions [graphs, targets], in split order; only if asked for.
  std::vector<uint32_t> graphs;
  std::vector<float> predictions;
};

struct EvaluationOptions {
  int64_t batch_size = 32;
  int64_t step = 0;  // optimizer steps done
  bool keep_predictions = false;
};

// `keep_going` is asked before each batch; false ends with Cancelled.
absl::StatusOr<Evaluation> Evaluate(StepEngine& engine, const data::Batcher& batcher, std::span<const uint32_t> split,
                                    const EvaluationOptions& options, const std::function<bool()>& keep_going);

}  // namespace permafrost::train
