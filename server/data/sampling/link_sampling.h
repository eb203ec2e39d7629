
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

// Pairs without an edge, for link prediction. Draws are stateless: a draw depends only on its key, so any thread can
// make it. Threads: safe anywhere.

// Returns, for each node, the number of other nodes to which it has no edge. Each of these other nodes can be the
// target of a negative of the node. Reads all edges once, and calls `keep_going` now and then. Errors: Cancelled if
// `keep_going` returns false; DataLoss.
absl::StatusOr<std::vector<uint32_t>> CountNonNeighbors(const GraphView& view, const std::function<bool()>& keep_going);

// Returns the nodes with an edge to every other node, in ascending order. They have no negatives. If there is no node
// of this kind, the function usually reads the in-edges of only a few nodes. Otherwise it reads all edges. Errors:
// same as CountNonNeighbors.
absl::StatusOr<std::vector<NodeId>> NodesLinkedToAll(const GraphView& view, const std::function<bool()>& keep_going);

class NegativeDraw {
 public:
  // `graph` has all of its edges, even edges that are held out. It has at least one node and, for kDegree, at least
  // one edge. `non_neighbors` is CountNonNeighbors of `graph`. If it is null, Draw searches for a non-neighbour
  // itself, which takes long for a source that has none.
  NegativeDraw(std::shared_ptr<const Graph> graph, spec::NegativeSampling sampling, uint64_t seed,
               std::shared_ptr<const std::vector<uint32_t>> non_neighbors = nullptr);

  // Fills `targets` with drawn nodes. None of them is `source` or a node to which `source` has an edge. Equal keys
  // draw equal targets. If kTries draws for one target all fail, takes the next row that qualifies. If no row
  // qualifies, fills `targets` with `source` and returns false. Errors: DataLoss.
  absl::StatusOr<bool> Draw(NodeId source, uint64_t key, std::span<NodeId> targets) const;

  static constexpr int kTries = 16;

 private:
  const std::shared_ptr<const Graph> graph_;
  const GraphView& view_ = graph_->view();
  const spec::NegativeSampling sampling_;
  const uint64_t seed_;
  const std::shared_ptr<const std::vector<uint32_t>> non_neighbors_;  // or null
};

// Removal of edges from a sampled subgraph, so that no messages pass along the links that a batch is to predict.
// Threads: pure functions.

// Pairs of seeds, (sources[i], targets[i]), given by their rows in a subgraph.
struct SeedPairs {
  std::span<const int64_t> sources, targets;
};

// Removes every edge between the two seeds of a pair, in either direction. Keeps all rows. After disjoint sampling,
// every seed's subgraph loses the edges between the nodes of the two seeds.
void ExcludeEdges(const SeedPairs& pairs, SampledSubgraph& subgraph);

}  // namespace permafrost::data
