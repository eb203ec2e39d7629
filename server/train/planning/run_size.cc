#include "train/planning/run_size.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "device/backend.h"
#include "device/staging.h"
#include "train/tasks/node_model_for.h"

namespace permafrost::train {
namespace {

constexpr double kMostBytes = 1e18;  // no machine has so much memory
// The copies of the parameters that live as long as the run: the parameters, two moments, and the parameters of the
// best epoch. A capture copies the first three.
constexpr double kLastingCopies = 4, kStateCopies = 3, kMoments = 2;
// The fraction of a training step's memory that a forward pass without gradients holds at once. It frees a layer's
// rows once the next layer has computed its own.
constexpr double kForwardPart = 0.5;

// A violation mentions executables if they take more than this fraction of the memory that the run needs.
constexpr double kToldExecutables = 0.1;

int64_t ToBytes(double bytes) { return static_cast<int64_t>(std::min(bytes, kMostBytes)); }
double Gigabytes(double bytes) { return bytes / 1e9; }

// Returns the most memory, in bytes, that reading files takes at once. A resume holds the optimizer's file, the
// largest one, as bytes and as tensors. An evaluation holds the tensors of the weights.
double ReadBytes(const RunMemory& memory, const MemoryLimits& limits) {
  return (limits.trains ? 2 * (kMoments + memory.state_copies) : 1) * sizeof(float) * memory.cost.parameters;
}

// Returns the peak memory of the weights and of a step, in bytes.
double StepBytes(const RunMemory& memory, const MemoryLimits& limits) {
  const double parameters = sizeof(float) * memory.cost.parameters,
               activations = sizeof(float) * memory.cost.activations;
  const double read = limits.device ? 0 : ReadBytes(memory, limits);
  if (!limits.trains) return parameters + std::max(read, kForwardPart * activations);
  // A training step also holds the gradients.
  const double step = activations + parameters;
  // A resume reads its files while the arena of its captures is held.
  const double state = std::max((kStateCopies + memory.state_copies) * parameters, read);
  const double peak = limits.records ? static_cast<double>(device::CapturePeakBytes(ToBytes(step), ToBytes(state)))
                      : limits.graphs && memory.executables > 0
                          ? static_cast<double>(device::GraphPeakBytes(ToBytes(step), ToBytes(state)))
                          : std::max(step, read);
  return (kLastingCopies + memory.state_copies + memory.other_copies) * parameters + peak;
}

// Returns the bytes of the staging buffers on the host. The staging buffers on the device take as many.
double StagedBytes(const RunMemory& memory, const MemoryLimits& limits) {
  return limits.device ? static_cast<double>(device::Staging::kSlots) * memory.input_bytes : 0;
}

// Returns the bytes of host memory that a run takes in addition to its steps.
double HostBytes(const RunMemory& memory, const MemoryLimits& limits) {
  return memory.batch_bytes + StagedBytes(memory, limits) + memory.result_bytes;
}

// Returns the bytes that executables take of the memory in which steps run.
double ExecutableBytes(const RunMemory& memory, const MemoryLimits& limits) {
  const auto executables = static_cast<double>(memory.executables);
  if (limits.graphs) return limits.trains ? executables * memory.input_bytes : 0;
  return executables * static_cast<double>(memory.executable_bytes);
}

}  // namespace

void AddCopies(const spec::OptimizerOptions& options, RunMemory& memory) {
  if (options.accumulate_steps > 1) memory.state_copies += 1;  // sums of gradients
  if (options.ema_decay == 0) return;
  memory.state_copies += 1;
  memory.other_copies += 1;  // the weights, set aside while the averages are evaluated
}

uint64_t ProcessBytes(const RunMemory& memory, const MemoryLimits& limits) {
  const double executables = limits.device ? 0 : ExecutableBytes(memory, limits);
  const double steps = limits.device ? ReadBytes(memory, limits) : StepBytes(memory, limits);
  return static_cast<uint64_t>(ToBytes(steps + HostBytes(memory, limits) + executables));
}

uint64_t DeviceBytes(const RunMemory& memory, const MemoryLimits& limits) {
  return static_cast<uint64_t>(
      ToBytes(StepBytes(memory, limits) + StagedBytes(memory, limits) + ExecutableBytes(memory, limits)));
}

void CheckFits(const RunMemory& memory, const MemoryLimits& limits, std::string_view what, std::string_view prefix,
               Violations& violations) {
  const double steps = StepBytes(memory, limits), rest = HostBytes(memory, limits),
               executables = ExecutableBytes(memory, limits);
  const auto check = [&](double other, double cache, uint64_t limit, std::string_view whose) {
    const double needed = other + cache;
    const auto allowed = static_cast<double>(limit);
    if (needed <= allowed) return;
    // Executables are not mentioned if they take little memory compared with a step.
    const std::string cached = cache > kToldExecutables * needed
                                   ? absl::StrCat(", and ", memory.executables, " executables, ",
                                                  std::ceil(10 * Gigabytes(cache)) / 10, " GB of it")
                                   : "";
    violations.Add(absl::StrCat(AbslView(prefix), "model"),
                   absl::StrCat("needs about ", std::ceil(10 * Gigabytes(needed)) / 10, " GB (", AbslView(what), cached,
                                "); ", AbslView(whose), " ", std::floor(10 * Gigabytes(allowed)) / 10, " GB"));
  };
  if (!limits.device) return check(steps + rest, executables, limits.process, "this process may use");
  check(ReadBytes(memory, limits) + rest, 0, limits.process, "this process may use");
  check(steps + StagedBytes(memory, limits), executables, *limits.device, "the device has");
}

namespace {

// TransposeCsr and IndexEdges have the same limit.
constexpr int64_t kIndexLimit = std::numeric_limits<int32_t>::max();

}  // namespace

absl::Status CheckWholeGraphIndex(const spec::TrainOptions& options, const data::GraphSummary& graph,
                                  const MemoryLimits& limits, std::string_view prefix) {
  const bool is_whole = options.nodes.fan_outs.empty() && !Walks(options);
  const bool sums_edges = options.model.architecture == spec::Architecture::kGine;
  if (!is_whole || limits.device || (!limits.trains && !sums_edges)) return absl::OkStatus();
  if (graph.nodes < kIndexLimit && graph.edges < kIndexLimit) return absl::OkStatus();
  Violations violations;
  violations.Add(absl::StrCat(AbslView(prefix), "neighbor_sampling.fan_outs"),
                 absl::StrCat("none, so that every step is the whole graph, whose ", graph.nodes, " nodes and ",
                              graph.edges, " edges are beyond what the CPU's operators index, below ", kIndexLimit,
                              " of either; accepted: fan-outs, by which steps sample it"));
  return violations.ToStatus();
}

void CheckBatchIndex(const BatchShape& largest, const MemoryLimits& limits, std::string_view prefix,
                     Violations& violations) {
  if (limits.device || (largest.nodes < kIndexLimit && largest.edges < kIndexLimit)) return;
  violations.Add(absl::StrCat(AbslView(prefix), "batch_size"),
                 absl::StrCat("batches of up to ", largest.nodes, " nodes and ", largest.edges,
                              " edges are beyond what the CPU's operators index, below ", kIndexLimit,
                              " of either; accepted: fewer graphs in a batch"));
}

}  // namespace permafrost::train
