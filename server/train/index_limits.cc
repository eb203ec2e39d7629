#include "train/index_limits.h"

#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "train/node_model_for.h"

namespace permafrost::train {
namespace {

// As TransposeCsr and IndexEdges have it.
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
