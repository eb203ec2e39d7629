// The few padded sizes that a job's sampled blocks are rounded up to.
// A schedule of sampled blocks is not walked ahead: that would cost as much as sampling for the whole job. Instead some
// of its batches are sampled before the first step. Sizes of full batches lie close together (sums over many seeds), so
// that a few multiples of their mean serve all: each rung is the mean block times a scale, in every dimension at once,
// and the rungs form a chain. The scales are those that pad least the sampled batches and others like them; the top one
// has a margin. Above
// it the chain goes on in steps of a half up to the proven bound, for the batch that comes against all odds.
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
  // A ladder has as many rungs unless told otherwise, and takes those of them that pad least.
  static constexpr int64_t kMaxRungs = spec::kDefaultRungs;

  // Sizes around those of a probe.
  static constexpr int64_t kAlike = 9;

  BlockRungs() = default;
  // Returns the sizes that batches like `probes` may be expected to have: for each probe kAlike equally likely sizes,
  // together the smoothed distribution of the probes. A few batches do not show all sizes that come, and a rung chosen
  // for them alone would seem to need less padding than it does.
  static std::vector<data::BlockSizes> Alike(const std::vector<data::BlockSizes>& probes,
                                             const data::BlockSizes& bound);
  // `probes`: sizes of batches of equally many seeds, at least one, without padding. `bound`: no block of so many
  // seeds, or of fewer, can be larger. The top rung is the smaller of the bound and what lies eight standard deviations
  // (in each batch's largest scale) above the mean, or above the largest probe: a batch beyond it is one in 10^15 where
  // sums are normal.
  static BlockRungs Plan(const std::vector<data::BlockSizes>& probes, const data::BlockSizes& bound,
                         int64_t max_rungs = kMaxRungs);
  // Adds a rung below this chain for the last, partial batch of each epoch: the highest planned rung of `partial`, if
  // it is smaller in every dimension than the lowest rung of this chain; if not, the rungs of this chain are planned up
  // to one that holds it. An empty chain becomes `partial`.
  void AddPartial(const BlockRungs& partial);

  // Rising; each holds the one before. First the planned ones, at which batches are expected, then those up to the
  // bound.
  const std::vector<data::BlockSizes>& rungs() const { return rungs_; }
  int64_t num_planned() const { return num_planned_; }
  // Keys of the planned ones.
  std::vector<BatchShape> PlannedShapes() const;
  // The lowest rung that holds a block of these sizes with its padding row. For batches of at most the planned number
  // of seeds.
  const data::BlockSizes& Fit(const data::BlockSizes& real) const;
  // The rung whose shape() is `shape`; nullptr: there is none.
  const data::BlockSizes* Find(const BatchShape& shape) const;

 private:
  // Appends a rung above all others. It replaces the last one where the two have the same shape() and differ in
  // nonzeros alone.
  void Push(data::BlockSizes rung);

  std::vector<data::BlockSizes> rungs_;
  int64_t num_planned_ = 0;
};

// Sizes of a block of so many seeds where every node has `degree` in-edges, within the sample's max_nodes and
// max_edges; nonzeros are the graph's, or where means are made elsewhere the edges of all hops. Otherwise a last hop
// apart is not counted. Rows of all hops together may be more than max_nodes, which bounds each hop here.
data::BlockSizes BlockAtDegree(const data::NeighborSamplingOptions& sampling, int64_t seeds, int64_t degree,
                               const data::GraphSummary& graph, bool means_elsewhere = false);

// Returns sizes that no block of at most `seeds` seeds can pass.
data::BlockSizes BlockBound(const data::NeighborSamplingOptions& sampling, int64_t seeds,
                            const data::GraphSummary& graph, bool means_elsewhere = false);

// The sizes of a block with the one padding row that every step includes.
data::BlockSizes LeastPadded(data::BlockSizes real);

// With kLeastDynamic rows, edges and, if there are any, nonzeros at least: what a dynamic executable takes.
data::BlockSizes AtLeastDynamic(data::BlockSizes sizes, bool has_nonzeros);

}  // namespace permafrost::train
