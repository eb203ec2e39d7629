// Estimates a run's memory before it begins, and checks it against the machine's. Also checks that each step's nodes
// and edges fit the 32-bit indices of the CPU operators. A job that is admitted must fit.
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
  double result_bytes = 0;  // outputs and scores that an evaluation keeps
  // The numbers of additional copies of the parameters that the run holds. `state_copies` counts those in the
  // optimizer, beyond its two moments, and `other_copies` those outside the optimizer.
  double state_copies = 0, other_copies = 0;
  // The number of executables that the cache will hold, as far as it is known; 0 if no step is captured.
  int64_t executables = 0;
  // Host memory of each executable, in bytes, without the memory that executables share; 0 if no step is recorded.
  int64_t executable_bytes = 0;
  // Bytes of the largest batch's inputs, or 0 if the whole graph lies on the device. Each staging buffer, on the host
  // or on the device, takes this many bytes, and so does each captured graph of the device.
  double input_bytes = 0;
};

// The memory that a run may take, in bytes.
struct MemoryLimits {
  uint64_t process = 0;  // what this process may use
  // Set for a device with memory of its own. That memory then holds the weights and the tensors of steps. If nullopt,
  // weights and steps take memory of the process.
  std::optional<uint64_t> device = std::nullopt;
  // If true, the capture of a step records its operators. During the capture, copies of the state take memory.
  bool records = true;
  // If true, a step is captured as a graph of the device (Backend::captures_graphs).
  bool graphs = false;
  // If false, the run is one evaluation, without an optimizer, gradients and captures.
  bool trains = true;
};
// No limits, for a job that was checked before.
inline constexpr MemoryLimits kNoLimits{.process = std::numeric_limits<uint64_t>::max()};

// Returns the part of `memory`, in bytes, that batches sampled ahead may take.
constexpr uint64_t SampledAheadBytes(uint64_t memory) { return memory / 32; }

// Adds the copies of the parameters that these options need.
void AddCopies(const spec::OptimizerOptions& options, RunMemory& memory);

// Returns the peak of a run's memory in this process, in bytes.
uint64_t ProcessBytes(const RunMemory& memory, const MemoryLimits& limits);

// Returns the peak of a run's device memory, in bytes.
uint64_t DeviceBytes(const RunMemory& memory, const MemoryLimits& limits);

// Adds a violation of PREFIXmodel if the run's peak exceeds the memory. Memory peaks when a step is captured or a
// checkpoint is read. `what` names the content of a step, e.g. "the whole graph in every step".
void CheckFits(const RunMemory& memory, const MemoryLimits& limits, std::string_view what, std::string_view prefix,
               Violations& violations);

// Checks that the graph fits the 32-bit indices, for a job that takes the whole graph in every step. Training uses
// 32-bit indices to gather gradients along the transposed edges. Evaluation uses them only for GINE's sum over edges.
// Devices other than the CPU have no such limit. Errors: InvalidArgument with a violation of
// PREFIXneighbor_sampling.fan_outs.
absl::Status CheckWholeGraphIndex(const spec::TrainOptions& options, const data::GraphSummary& graph,
                                  const MemoryLimits& limits, std::string_view prefix);

// Adds a violation of the field `prefix` + "batch_size" if the largest batch of a set has too many nodes or edges for
// 32-bit indices.
void CheckBatchIndex(const BatchShape& largest, const MemoryLimits& limits, std::string_view prefix,
                     Violations& violations);

}  // namespace permafrost::train
