// Tells before a run begins how large it becomes: the memory that it takes, and whether the CPU's operators, which
// index nodes and edges by 32 bits, can index its steps. A job that is admitted must fit. Threads: pure functions.
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
  // Copies of the parameters that the optimizer keeps beside two moments, and that lie beside it.
  double state_copies = 0, other_copies = 0;
  // Executables that the cache comes to hold, as far as that is known; 0: no step is captured.
  int64_t executables = 0;
  // Bytes of each on the host, what they share apart; 0: no step is recorded.
  int64_t executable_bytes = 0;
  // Bytes of the largest batch's inputs. Each buffer of the staging has so many, on the host and on the device, and so
  // has each graph of the device. 0: the whole graph lies on the device.
  double input_bytes = 0;
};

// The memory that a run may take, in bytes.
struct MemoryLimits {
  uint64_t process = 0;  // what this process may use
  // For a device with memory of its own, which then holds the weights and the steps; nullopt: the process's memory is
  // used.
  std::optional<uint64_t> device = std::nullopt;
  // True: a step is recorded when it is captured, which keeps copies of the state meanwhile.
  bool records = true;
  // True: a step is captured as a graph of the device (Backend::captures_graphs).
  bool graphs = false;
  // false: what is judged is one evaluation, without an optimizer, gradients and captures.
  bool trains = true;
};
// For a job that was judged before.
inline constexpr MemoryLimits kNoLimits{.process = std::numeric_limits<uint64_t>::max()};

// Returns the most bytes that batches sampled ahead may take, if there is this much memory.
constexpr uint64_t SampledAheadBytes(uint64_t memory) { return memory / 32; }

// The copies that the optimizer's options are to blame for.
void AddCopies(const spec::OptimizerOptions& options, RunMemory& memory);

// Bytes of this process that a run takes at its worst moment.
uint64_t ProcessBytes(const RunMemory& memory, const MemoryLimits& limits);

// Bytes of the device that a run takes at its worst moment.
uint64_t DeviceBytes(const RunMemory& memory, const MemoryLimits& limits);

// Adds a violation of PREFIXmodel where the run takes more than there is, at its worst moment: the capture of a step,
// or the reading of a checkpoint. `what`: one step's content, as "the whole graph in every step".
void CheckFits(const RunMemory& memory, const MemoryLimits& limits, std::string_view what, std::string_view prefix,
               Violations& violations);

// Ok where a job that takes the whole graph in every step can index it. Training gathers gradients by the transposed
// edges; in evaluation only GINE's sum counts edges so. Other devices have no such limit. Errors: InvalidArgument with
// a violation of PREFIXneighbor_sampling.fan_outs.
absl::Status CheckWholeGraphIndex(const spec::TrainOptions& options, const data::GraphSummary& graph,
                                  const MemoryLimits& limits, std::string_view prefix);

// Adds a violation of PREFIXbatch_size where the largest batch of a set cannot be indexed.
void CheckBatchIndex(const BatchShape& largest, const MemoryLimits& limits, std::string_view prefix,
                     Violations& violations);

}  // namespace permafrost::train
