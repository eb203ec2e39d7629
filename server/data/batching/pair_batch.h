// Batches of node pairs with negatives: links of a graph, and nodes that meet in random walks.
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

// Batches of pairs for link prediction: links, and negatives beside them.
// Threads: immutable once made; all methods are safe anywhere.

// A batch of pairs. The links come first, then the negatives of each link in the order of the links. A negative has
// the source of its link. If a source has an edge to every other node, its links have padding in place of negatives.
// Padding repeats real pairs, so that every scorer can score it.
struct LinkBatch {
  std::vector<NodeId> seeds;  // the distinct nodes of the pairs, rising; empty after MakeOfNodes
  // [seeds] The time of the seed's links, if links have times. A node whose links have two times is two seeds.
  std::vector<int64_t> times;
  AlignedVector<int64_t> sources, targets;  // [pairs] indices into `seeds`, or nodes if `seeds` is empty
  AlignedVector<float> labels;              // [pairs] 1 for a link, 0 for a negative, NaN for padding
  size_t links = 0;

  SeedPairs positives() const { return {std::span(sources).first(links), std::span(targets).first(links)}; }
};

class LinkBatcher {
 public:
  // `links` holds the links of a split, and `negatives` is the number of negatives for each link. `times` has the
  // time of each link, or is empty. The caller keeps `links` and `times` alive.
  LinkBatcher(std::span<const Link> links, NegativeDraw draw, int64_t negatives, std::span<const int64_t> times = {})
      : links_(links), draw_(std::move(draw)), negatives_(negatives), times_(times) {}

  int64_t pairs(int64_t links) const { return links * (1 + negatives_); }
  // Makes the batch of the links `ids`, padded to `pairs` pairs. It has no seeds, and its pairs hold node numbers.
  // `epoch` decides which negatives are drawn. Equal arguments make equal batches. Errors: DataLoss.
  absl::Status MakeOfNodes(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const;
  // Makes the batch of MakeOfNodes, but with seeds: fills `seeds` and `times`, and its pairs hold indices into
  // `seeds`.
  absl::Status Make(std::span<const uint32_t> ids, int64_t epoch, int64_t pairs, LinkBatch& out) const;

 private:
  std::span<const Link> links_;
  NegativeDraw draw_;
  int64_t negatives_;
  std::span<const int64_t> times_;
};

// Batches of random walks for skip-gram. A batch holds walks along edges from seed nodes, negative walks over random
// nodes, and the places at which each node occurs in them.
// Threads: one thread uses a batcher, but the graph may be shared. Equal arguments make equal batches, whatever the
// number of threads.

struct WalkBatchOptions {
  int64_t length = 20;    // number of nodes in a walk
  double p = 1, q = 1;    // as in WalkOptions
  int64_t per_seed = 10;  // number of walks from each seed
  int64_t negatives = 1;  // negative walks for each walk; all of them begin at the walk's seed
  uint64_t seed = 0;
};

// The walks of a batch that has room for `room` seeds. Padding entries of `walks` repeat a node of a real walk, and
// `places` leaves them out.
struct WalkBatch {
  int64_t seeds = 0, room = 0;  // `seeds` is the number of real seeds, and `room` the number with padding
  // [room * per_seed * (1 + negatives), length]: walks along edges first, then negative walks
  AlignedVector<int64_t> walks;
  // The entries of `walks` at which each distinct node occurs:
  // node rows[m] occurs at places[offsets[m] .. offsets[m + 1]), which rise. `rows` is as long as any batch may need;
  // unused entries have empty ranges.
  AlignedVector<int64_t> rows, offsets, places;
};

class WalkBatcher {
 public:
  // The graph must have out-edges. Errors: InvalidArgument, as RandomWalks.
  static absl::StatusOr<std::unique_ptr<WalkBatcher>> Create(std::shared_ptr<const Graph> graph,
                                                             const WalkBatchOptions& options, int threads);

  // Makes the batch of `seeds`, which are 1..room nodes. `stream` selects the random stream of the draws. Errors:
  // DataLoss.
  absl::Status Make(std::span<const NodeId> seeds, int64_t room, uint64_t stream, WalkBatch& out);

 private:
  WalkBatcher(std::shared_ptr<const Graph> graph, const WalkBatchOptions& options, int threads)
      : graph_(std::move(graph)), options_(options), threads_(threads) {}
  void FindRows(WalkBatch& out);

  const std::shared_ptr<const Graph> graph_;
  const WalkBatchOptions options_;
  const int threads_;
  std::vector<NodeId> starts_, drawn_;
  std::vector<uint32_t> row_of_node_;  // [nodes] the node's index in `rows` of the current batch, or kNotMet
};

}  // namespace permafrost::data
