// Tells before a run begins how large it becomes: how much memory it takes, and whether the CPU's operators can index
// its steps, since they index nodes and edges by 32 bits. A job that is admitted must fit.
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "base/status.h"
#include "base/step.h"
#include "data/store/graph.h"
#include "nn/models/model.h"
#include "spec/optimizer.h"
#include "spec/train_options.h"

namespace permafrost::train {

struct RunMemory {
  nn::ModelCost cost;       // the larger of the training and the evaluation step
  double batch_bytes = 0;   // batches on the host: in the step, made ready, and sampled ahead
  double result_bytes = 0;  // what evaluation keeps
  // `state_copies` of the parameters are kept by the optimizer beyond its two moments, `other_copies` beside the
  // optimizer.
  double state_copies = 0, other_copies = 0;
  // Executables that the cache comes to hold, as far as that is known; 0 if no step is captured.
  int64_t executables = 0;
  // Bytes of each executable on the host, without those that executables share; 0 if no step is recorded.
  int64_t executable_bytes = 0;
  // Bytes of the largest batch's inputs, or 0 if the whole graph lies on the device. Each staging buffer takes as
  // many, on the host and on the device, and so does each graph of the device.
  double input_bytes = 0;
};

// The memory that a run may take, in bytes.
struct MemoryLimits {
  uint64_t process = 0;  // what this process may use
  // Set for a device with memory of its own, which then holds the weights and the steps. If nullopt, they take memory
  // of the process.
  std::optional<uint64_t> device = std::nullopt;
  // If true, a step is recorded when it is captured, which takes copies of the state meanwhile.
  bool records = true;
  // If true, a step is captured as a graph of the device (Backend::captures_graphs).
  bool graphs = false;
  // If false, the run is one evaluation, without an optimizer, gradients and captures.
  bool trains = true;
};
// For a job that was checked before.
inline constexpr MemoryLimits kNoLimits{.process = std::numeric_limits<uint64_t>::max()};

// Returns the most bytes that batches sampled ahead may take, if there is this much memory.
constexpr uint64_t SampledAheadBytes(uint64_t memory) { return memory / 32; }

// Adds the copies of the parameters that these options need.
void AddCopies(const spec::OptimizerOptions& options, RunMemory& memory);

// Returns the bytes of this process that a run takes at its worst moment.
uint64_t ProcessBytes(const RunMemory& memory, const MemoryLimits& limits);

// Returns the bytes of the device that a run takes at its worst moment.
uint64_t DeviceBytes(const RunMemory& memory, const MemoryLimits& limits);

// Adds a violation of PREFIXmodel if the run takes more memory than there is at its worst moment, which is the capture
// of a step or the reading of a checkpoint. `what` says what one step holds, e.g. "the whole graph in every step".
void CheckFits(const RunMemory& memory, const MemoryLimits& limits, std::string_view what, std::string_view prefix,
               Violations& violations);

// Returns Ok if a job that takes the whole graph in every step can index it. Training gathers gradients along the
// transposed edges, which needs the index; in evaluation only GINE's sum over edges needs it. Other devices have no
// such limit. Errors: InvalidArgument with a violation of PREFIXneighbor_sampling.fan_outs.
absl::Status CheckWholeGraphIndex(const spec::TrainOptions& options, const data::GraphSummary& graph,
                                  const MemoryLimits& limits, std::string_view prefix);

// Adds a violation of PREFIXbatch_size if the largest batch of a set cannot be indexed.
void CheckBatchIndex(const BatchShape& largest, const MemoryLimits& limits, std::string_view prefix,
                     Violations& violations);

}  // namespace permafrost::train
