// The few padded sizes that a job's sampled blocks are rounded up to.
//
// A schedule of sampled blocks is not walked ahead, since that would cost as much as sampling for the whole job.
// Instead some batches are sampled before the first step. The sizes of full batches lie close together, since each is
// a sum over many seeds. So a few multiples of the mean block serve all batches. Each rung is the mean block times a
// scale that is the same in every dimension, so the rungs form a chain. The scales are chosen for the least padding
// of the sampled batches and of others like them. The top scale has a margin. For a batch that exceeds this margin,
// the chain goes on above the top rung by factors of 1.5, up to the proven bound.
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
  // The most rungs of a ladder, unless the caller of Plan sets another maximum. The rungs with the least padding are
  // chosen.
  static constexpr int64_t kMaxRungs = spec::kDefaultRungs;

  // Alike returns this many sizes for each probe.
  static constexpr int64_t kAlike = 9;

  BlockRungs() = default;
  // Returns the sizes that batches like `probes` may be expected to have. There are kAlike equally likely sizes for
  // each probe; together they are the smoothed distribution of the probes. A few probes do not show all sizes that
  // will occur. Rungs chosen for the probes alone would seem to need less padding than they do.
  static std::vector<data::BlockSizes> Alike(const std::vector<data::BlockSizes>& probes,
                                             const data::BlockSizes& bound);
  // `probes` are the sizes, without padding, of one or more batches with equal numbers of seeds. No block with that
  // many seeds or fewer is larger than `bound`. The top rung lies eight standard deviations above the largest probe,
  // or at the bound if that is smaller. The deviation is measured on each batch's largest scale. If these scales are
  // normally distributed, one batch in 10^15 exceeds this rung.
  static BlockRungs Plan(const std::vector<data::BlockSizes>& probes, const data::BlockSizes& bound,
                         int64_t max_rungs = kMaxRungs);
  // Adds a rung below this chain for the last, partial batch of each epoch. The rung is the highest planned rung of
  // `partial`, if that is smaller in every dimension than the lowest rung of this chain. Otherwise, the rungs of this
  // chain become planned up to the first one that holds that rung. An empty chain becomes `partial`.
  void AddPartial(const BlockRungs& partial);

  // Returns the rungs in rising order; each holds the one before. First come the planned rungs, at which batches are
  // expected, and then the rungs up to the bound.
  const std::vector<data::BlockSizes>& rungs() const { return rungs_; }
  int64_t num_planned() const { return num_planned_; }
  // Returns the shapes of the planned rungs.
  std::vector<BatchShape> PlannedShapes() const;
  // Returns the lowest rung that holds a block of these sizes with its padding row. The block must have at most the
  // planned number of seeds.
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

// Returns the sizes that a block of `seeds` seeds has if every node has `degree` in-edges, within the sample's
// max_nodes and max_edges. `nonzeros` counts the graph's nonzero features, or with `means_elsewhere` the edges of all
// hops. Without `means_elsewhere`, the edges of a last hop that stands apart are not counted. max_nodes bounds each
// hop here, so the rows of all hops together may exceed it.
data::BlockSizes BlockAtDegree(const data::NeighborSamplingOptions& sampling, int64_t seeds, int64_t degree,
                               const data::GraphSummary& graph, bool means_elsewhere = false);

// Returns sizes that no block of at most `seeds` seeds can exceed.
data::BlockSizes BlockBound(const data::NeighborSamplingOptions& sampling, int64_t seeds,
                            const data::GraphSummary& graph, bool means_elsewhere = false);

// Returns the sizes of a block with the one padding row that every step includes.
data::BlockSizes LeastPadded(data::BlockSizes real);

// Raises rows, edges and, if there are any, nonzeros to at least kLeastDynamic, as a dynamic executable requires.
data::BlockSizes AtLeastDynamic(data::BlockSizes sizes, bool has_nonzeros);

}  // namespace permafrost::train
