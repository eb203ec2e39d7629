// Batches of random walks for skip-gram: walks from seed nodes, as many of random nodes, and which nodes stand where.
// Threads: a batcher is one thread's, but for what it is made of; equal arguments make equal batches, whatever the
// number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "data/sampling/random_walk.h"
#include "data/store/graph.h"

namespace permafrost::data {

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
