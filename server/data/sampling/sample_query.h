// One sample of a large graph for a person to look at: `permafrost dataset sample`.
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
  // Seeds or starts, as rows or by the source's names for them; both empty: `count` of them are drawn by the seed.
  std::vector<NodeId> nodes;
  std::vector<std::string> names;
  int64_t count = spec::kDefaultStarts;  // 1..10,000
  // For temporal sampling: only edges with a timestamp below it are drawn; nullopt: all may be.
  std::optional<int64_t> seed_time;
  // The kind of sample to draw around them.
  std::variant<NeighborSamplingOptions, WalkOptions> kind;
};

struct SampleAnswer {
  std::vector<NodeId> nodes;  // seeds or starts
  // The subgraph of neighbour sampling, in rows of the graph.
  struct Edge {
    NodeId source = 0, target = 0;
    int64_t hop = 0;  // from 1
    float weight = 1;
    int64_t timestamp = 0;  // of a graph that has them
    NodeId seed = 0;        // of disjoint sampling, in whose subgraph it is
  };
  std::vector<int64_t> nodes_of_hop;  // [hops + 1] nodes first found in each
  std::vector<Edge> edges;
  // The walks, [nodes, length].
  int64_t walk_length = 0;
  std::vector<NodeId> walks;
  // The names that the source gives to the rows above, each once, rising; none if the graph has no names.
  std::vector<std::pair<NodeId, std::string>> names;
  double seconds = 0;  // what drawing took
};

// At most kMaxSampledEdges edges or walk steps. Errors: InvalidArgument with violations; ResourceExhausted beyond that
// bound; DataLoss.
inline constexpr int64_t kMaxSampledEdges = 1'000'000;
absl::StatusOr<SampleAnswer> Sample(const Graph& graph, const SampleQuery& query, int threads);

}  // namespace permafrost::data
