// Batches of pairs of nodes, real ones and drawn ones beside them: of links, and of nodes that random walks meet.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "data/sampling/link_sampling.h"
#include "data/sampling/random_walk.h"
#include "data/store/graph.h"
#include "data/store/other_splits.h"

namespace permafrost::data {

// Batches of pairs for link prediction: links, and pairs without an edge beside them.
// Threads: immutable once made; Make is safe anywhere.

// First its links, then the negatives of each link, in the order of the links: they share its source. A link whose
// source has an edge to every other node has no negatives: padding takes their place. Padding repeats real pairs, so
// that every scorer can score it.
struct LinkBatch {
  std::vector<NodeId> seeds;                // the distinct nodes of its pairs, rising; or empty
  std::vector<int64_t> times;               // of links with times [seeds]: the link's, of each node once for each time
  AlignedVector<int64_t> sources, targets;  // [pairs] places among the seeds, without seeds nodes
  AlignedVector<float> labels;              // [pairs] 1: a link, 0: none, NaN: padding
  size_t links = 0;

  SeedPairs positives() const { return {std::span(sources).first(links), std::span(targets).first(links)}; }
};

class LinkBatcher {
 public:
  // links: of the split, kept by the caller. negatives: pairs without an edge beside each link. times: of the links,
  // kept too; or empty.
  LinkBatcher(std::span<const Link> links, NegativeDraw draw, int64_t negatives, std::span<const int64_t> times = {})
      : links_(links), draw_(std::move(draw)), negatives_(negatives), times_(times) {}

  int64_t pairs(int64_t links) const { return links * (1 + negatives_); }
  // Makes the batch of the links `ids`, padded to `pairs`, without seeds. epoch: whose negatives. Equal arguments make
  // equal batches. Errors: DataLoss.
  absl::Status MakeOfNodes(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const;
  // The same with seeds.
  absl::Status Make(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const;

 private:
  std::span<const Link> links_;
  NegativeDraw draw_;
  int64_t negatives_;
  std::span<const int64_t> times_;
};

// Batches of random walks for skip-gram: walks from seed nodes, as many of random nodes, and which nodes stand where.
// Threads: a batcher is one thread's, but for what it is made of; equal arguments make equal batches, whatever the
// number of threads.

struct WalkBatchOptions {
  int64_t length = 20;    // nodes of a walk
  double p = 1, q = 1;    // as WalkOptions
  int64_t per_seed = 10;  // walks
  int64_t negatives = 1;  // walks of random nodes beside each, which begin in its seed
  uint64_t seed = 0;
};

// Walks of as many seeds as the batch has room for; padding repeats a row of a real walk, and stands in no range.
struct WalkBatch {
  int64_t seeds = 0, room = 0;   // real ones, and padding included
  AlignedVector<int64_t> walks;  // [room * per_seed * (1 + negatives), length]: those along edges first
  // The places of each distinct node among the walks' entries, rising: those of rows[m] are
  // places[offsets[m] .. offsets[m + 1]). It has as many rows as any batch may need: the others have empty ranges.
  AlignedVector<int64_t> rows, offsets, places;
};

class WalkBatcher {
 public:
  // The graph must have out-edges. Errors: InvalidArgument as RandomWalks.
  static absl::StatusOr<std::unique_ptr<WalkBatcher>> Create(std::shared_ptr<const Graph> graph,
                                                             const WalkBatchOptions& options, int threads);

  // The batch of these nodes, 1..room of them; stream: which draw this is. Errors: DataLoss.
  absl::Status Make(std::span<const NodeId> seeds, int64_t room, uint64_t stream, WalkBatch& out);

 private:
  WalkBatcher(std::shared_ptr<const Graph> graph, const WalkBatchOptions& options, int threads)
      : graph_(std::move(graph)), options_(options), threads_(threads) {}
  void FindRows(WalkBatch& out);

  const std::shared_ptr<const Graph> graph_;
  const WalkBatchOptions options_;
  const int threads_;
  std::vector<NodeId> starts_, drawn_;
  std::vector<uint32_t> row_of_node_;  // [nodes], of a batch in the making; kNotMet: not met yet
};

}  // namespace permafrost::data
