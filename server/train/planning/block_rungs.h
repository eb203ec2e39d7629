// The few padded sizes that a job's sampled blocks are rounded up to.
//
// A schedule of sampled blocks is not walked ahead, since that would cost as much as sampling for the whole job.
// Instead some batches are sampled before the first step. The sizes of full batches lie close together, since each
// size is a sum over many seeds. So a few multiples of the mean block serve all batches. Each rung is the mean block
// times a scale that is the same in every dimension, so the rungs form a chain. The scales are chosen for the least
// padding of the sampled batches and of similar batches (Alike). The top scale has a margin. For a batch that exceeds
// this margin, the chain goes on above the top rung by factors of 1.5, up to the proven bound.
//
// Threads: a value; pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "base/step.h"
#include "data/batching/block_batch.h"
#include "spec/policy.h"

namespace permafrost::train {

class BlockRungs {
 public:
  // The default maximum of rungs in Plan. Plan chooses the rungs with the least padding.
  static constexpr int64_t kMaxRungs = spec::kDefaultRungs;

  // The number of sizes that Alike returns for each probe.
  static constexpr int64_t kAlike = 9;

  BlockRungs() = default;
  // Returns a sample of the smoothed distribution of the probes' sizes: kAlike equally likely sizes for each probe.
  // Other batches have sizes that no probe has. If rungs were chosen for the probes alone, the padding of the run
  // would be underestimated.
  static std::vector<data::BlockSizes> Alike(const std::vector<data::BlockSizes>& probes,
                                             const data::BlockSizes& bound);
  // `probes` are the sizes, without padding, of one or more batches with equal numbers of seeds. No block with that
  // many seeds or fewer is larger than `bound`. The top rung lies eight standard deviations above the largest probe,
  // or at the bound if that is smaller. A batch's scale is the largest one over all dimensions, and the standard
  // deviation is that of the batches' scales. If these scales are normally distributed, one batch in 10^15 exceeds
  // this rung.
  static BlockRungs Plan(const std::vector<data::BlockSizes>& probes, const data::BlockSizes& bound,
                         int64_t max_rungs = kMaxRungs);
  // Adds a rung below this chain for the last, partial batch of each epoch. The added rung is the highest planned
  // rung of `partial`, if it fits in the lowest rung of this chain. Otherwise no rung is added; instead, this chain's
  // rungs become planned up to the first one that holds the highest planned rung of `partial`. An empty chain becomes
  // `partial`.
  void AddPartial(const BlockRungs& partial);

  // Returns the rungs in rising order; each holds the one before it. The lower rungs are the planned ones, at which
  // batches are expected. The upper ones lead up to the bound.
  const std::vector<data::BlockSizes>& rungs() const { return rungs_; }
  int64_t num_planned() const { return num_planned_; }
  // Returns the shapes of the planned rungs.
  std::vector<BatchShape> PlannedShapes() const;
  // Returns the lowest rung that holds a block of these sizes and a padding row. The block must not have more seeds
  // than planned.
  const data::BlockSizes& Fit(const data::BlockSizes& real) const;
  // Returns the rung whose shape() is `shape`, or null if there is none.
  const data::BlockSizes* Find(const BatchShape& shape) const;

 private:
  // Appends a rung above all others. It replaces the last rung if both have the same shape() and differ only in
  // nonzeros.
  void Push(data::BlockSizes rung);

  std::vector<data::BlockSizes> rungs_;
  int64_t num_planned_ = 0;
};

// Returns the sizes that a block of `seeds` seeds has if every node has `degree` in-edges. The sample's max_nodes and
// max_edges limit them. Without `means_elsewhere`, `nonzeros` counts nonzero features, and the edges of a last hop
// that is kept apart are not counted. With `means_elsewhere`, `nonzeros` counts the edges of all hops. Here max_nodes
// bounds each hop by itself, so the rows of all hops together may exceed it.
data::BlockSizes BlockAtDegree(const data::NeighborSamplingOptions& sampling, int64_t seeds, int64_t degree,
                               const data::GraphSummary& graph, bool means_elsewhere = false);

// Returns sizes that no block of at most `seeds` seeds can exceed.
data::BlockSizes BlockBound(const data::NeighborSamplingOptions& sampling, int64_t seeds,
                            const data::GraphSummary& graph, bool means_elsewhere = false);

// Returns the sizes of a block after the one padding row is added that every step includes.
data::BlockSizes LeastPadded(data::BlockSizes real);

// Raises rows, edges and, if there are any, nonzeros to at least kLeastDynamic, as a dynamic executable requires.
data::BlockSizes AtLeastDynamic(data::BlockSizes sizes, bool has_nonzeros);

}  // namespace permafrost::train
