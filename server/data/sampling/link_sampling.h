
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

// Pairs without an edge, for link prediction. Stateless: a draw depends only on its key, so that any thread can make
// any of them. Threads: safe anywhere.

// For each node the number of others that it has no edge to: those that can be targets of its negatives. Reads all
// edges once. `keep_going` is asked now and then. Errors: Cancelled when it says no; DataLoss.
absl::StatusOr<std::vector<uint32_t>> CountNonNeighbors(const GraphView& view, const std::function<bool()>& keep_going);

// The nodes with an edge to every other node, rising: they have no negatives. Reads the in-edges of few nodes where
// there is none, else of all. Errors: as CountNonNeighbors.
absl::StatusOr<std::vector<NodeId>> NodesLinkedToAll(const GraphView& view, const std::function<bool()>& keep_going);

class NegativeDraw {
 public:
  // `graph`: with all of its edges, those held out too; at least one node, of kDegree at least one edge.
  // `non_neighbors`: CountNonNeighbors of it; null: a draw finds out by itself, which takes long for a source without
  // any.
  NegativeDraw(std::shared_ptr<const Graph> graph, spec::NegativeSampling sampling, uint64_t seed,
               std::shared_ptr<const std::vector<uint32_t>> non_neighbors = nullptr);

  // Draws targets that `source` has no edge to and is not itself. key: which draw this is. A target that is an edge is
  // drawn anew; after kTries of them the next row that is none is taken. Returns false, with `source` in their place,
  // where there is no such row. Errors: DataLoss.
  absl::StatusOr<bool> Draw(NodeId source, uint64_t key, std::span<NodeId> targets) const;

  static constexpr int kTries = 16;

 private:
  const std::shared_ptr<const Graph> graph_;
  const GraphView& view_ = graph_->view();
  const spec::NegativeSampling sampling_;
  const uint64_t seed_;
  const std::shared_ptr<const std::vector<uint32_t>> non_neighbors_;  // or null
};

// Takes edges out of a sampled subgraph: those that a batch is to predict must not pass messages.
// Threads: pure functions.

// Pairs of seeds, by their rows in a subgraph: sources[i] and targets[i].
struct SeedPairs {
  std::span<const int64_t> sources, targets;
};

// Removes every edge between the two seeds of a pair, in either direction. In a disjoint subgraph it does so wherever
// the two nodes stand, in any seed's part. Rows stay.
void ExcludeEdges(const SeedPairs& pairs, SampledSubgraph& subgraph);

}  // namespace permafrost::data
