// Draws one sample of a large graph for a person to look at: `permafrost dataset sample`.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/sampling/random_walk.h"
#include "data/store/graph.h"

namespace permafrost::data {

struct SampleQuery {
  // The seeds of neighbour sampling or the starts of walks. They are given as rows in `nodes`, or by the source's
  // names in `names`. If both are empty, the seed of `kind` draws `count` nodes.
  std::vector<NodeId> nodes;
  std::vector<std::string> names;
  int64_t count = spec::kDefaultStarts;  // 1..10,000
  // For temporal sampling: only edges with a timestamp below this time are drawn. nullopt allows all edges.
  std::optional<int64_t> seed_time;
  // The kind of sample to draw around the seeds or starts.
  std::variant<NeighborSamplingOptions, WalkOptions> kind;
};

struct SampleAnswer {
  std::vector<NodeId> nodes;  // seeds or starts
  // The subgraph of neighbour sampling, as edges between rows of the graph.
  struct Edge {
    NodeId source = 0, target = 0;
    int64_t hop = 0;  // counted from 1
    float weight = 1;
    int64_t timestamp = 0;  // if the graph has timestamps
    NodeId seed = 0;        // after disjoint sampling: the seed whose subgraph holds the edge
  };
  std::vector<int64_t> nodes_of_hop;  // [hops + 1] the number of nodes first found in each hop; hop 0 is the seeds
  std::vector<Edge> edges;
  // The walks, [nodes, walk_length].
  int64_t walk_length = 0;
  std::vector<NodeId> walks;
  // Pairs (row, the source's name for it) for all rows in this answer. Rows rise, and each is listed once. Empty if
  // the graph has no names.
  std::vector<std::pair<NodeId, std::string>> names;
  double seconds = 0;  // how long drawing took
};

// A sample has at most kMaxSampledEdges edges or walk steps. Errors: InvalidArgument with violations;
// ResourceExhausted if the sample would be larger; DataLoss.
inline constexpr int64_t kMaxSampledEdges = 1'000'000;
absl::StatusOr<SampleAnswer> Sample(const Graph& graph, const SampleQuery& query, int threads);

}  // namespace permafrost::data
