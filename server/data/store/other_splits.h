// A dataset with other splits than its own, or another summary, and all else as it is. If the summary says another
// number of targets than the dataset has, all labels are missing: they are absent.
// Threads: pure functions; what they make is safe anywhere, and keeps the dataset alive.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

struct OtherSplits {
  std::array<std::vector<uint32_t>, 3> rows;  // by Split: graphs or nodes of the dataset, rising
  std::string name;                           // of the summary
};

// `summary`: what is told of the set but for its splits, whose sizes are measured here. `checksum`: of what comes out,
// which differs wherever the splits do. Errors: DataLoss from the offsets.
absl::StatusOr<std::shared_ptr<const GraphSet>> WithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits,
                                                           GraphSetSummary summary, uint64_t checksum);

// `summary`: what is told of the graph but for its splits.
std::shared_ptr<const Graph> WithSplits(std::shared_ptr<const Graph> graph, OtherSplits splits, GraphSummary summary);

// `summary`: what is told of the graph; the sizes and what there is are its own.
std::shared_ptr<const Graph> WithSummary(std::shared_ptr<const Graph> graph, GraphSummary summary);

}  // namespace permafrost::data
