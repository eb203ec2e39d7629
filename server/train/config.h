// What a training run does, without torch: the part of a job that train/ understands.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "base/id.h"
#include "base/status.h"
#include "graphcache/policy.h"
#include "nn/config.h"

namespace permafrost::train {

struct CheckpointOptions {
  // Steps between checkpoints beside the one at the end of each epoch. Smaller: less lost on a crash, more disk writes.
  // 0: only those.
  int64_t every_steps = 0;
  // Checkpoints kept, 1..100; the newest complete one is never deleted.
  int64_t keep = 2;
  bool operator==(const CheckpointOptions&) const = default;
};

struct TrainOptions {
  DatasetId dataset;
  nn::ModelOptions model;
  nn::OptimizerOptions optimizer;
  nn::Loss loss = nn::Loss::kL1;
  int64_t epochs = 20;      // 1..1,000,000
  int64_t batch_size = 32;  // graphs, 1..65,536
  uint64_t seed = 0;
  CheckpointOptions checkpoint;
  graphcache::PolicyOptions graph_cache;
  bool operator==(const TrainOptions&) const = default;
};

// Adds a violation for each value out of range; fields are named as on the wire, after `prefix` ("spec.").
void Validate(const TrainOptions& options, std::string_view prefix, Violations& violations);

}  // namespace permafrost::train
