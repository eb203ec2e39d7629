// The order of graphs in an epoch, and their division into batches. Both are pure functions of the seed and the
// epoch, so they are known in advance.
// Threads: pure functions and immutable values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/random.h"
#include "data/store/types.h"
#include "spec/sampling.h"

namespace permafrost::data {

// Deals graphs into batches of nearly equal size: takes the larger graphs first, and gives each to the batch that is
// the smallest so far.
// Source: Graham 1969, "Bounds on multiprocessing timing anomalies" (longest processing time first).
// Threads: pure functions.
struct GraphSize {
  int64_t nodes = 0, edges = 0;
  bool operator==(const GraphSize&) const = default;
};

// The most that a batch may hold. 0 means no bound.
struct DealLimits {
  int64_t graphs = 0, nodes = 0, edges = 0;
};

// Sorts `order`, a list of indices into `sizes`, so that larger graphs come first. A graph's size is its nodes plus
// its edges. Graphs are compared by size classes, which lie 10 % apart, so graphs of nearly equal size keep their
// order.
void LargerFirst(std::span<const GraphSize> sizes, std::span<uint32_t> order);
// Like LargerFirst, but sorts by size itself, so only graphs of equal size keep their order. Deal then makes batches
// of the same sizes for every initial order.
void LargestFirst(std::span<const GraphSize> sizes, std::span<uint32_t> order);

// Returns the batch, 0..batches-1, of each entry of `order`. Each graph goes to the least loaded batch. A batch's
// load is the larger of two shares: its share of all nodes, and its share of all edges. No batch is empty if there
// are at least `batches` graphs. Returns nullopt if a batch would exceed the limits. O(n log n).
std::optional<std::vector<uint32_t>> Deal(std::span<const GraphSize> sizes, std::span<const uint32_t> order,
                                          int64_t batches, const DealLimits& limits);

// Returns the smallest number of batches that bisection finds with which Deal stays within the limits, if it gets the
// order of LargestFirst. A smaller number may do too. Every single graph must be within the limits.
int64_t LeastBatches(std::span<const GraphSize> sizes, const DealLimits& limits);

// Deals the graphs into this number of batches, in the order of LargestFirst. Returns limits that this deal meets
// with little room to spare. They are never looser than `limits`, which the deal must meet too.
DealLimits TightLimits(std::span<const GraphSize> sizes, int64_t batches, const DealLimits& limits);

// The position in a job's sequence of training batches. It is all that a checkpoint keeps of the order.
struct EpochPosition {
  int64_t epoch = 0;  // counted from 0
  int64_t batch = 0;  // batches of this epoch that are already consumed
  auto operator<=>(const EpochPosition&) const = default;
};

struct EpochOrderOptions {
  // The number of graphs in each batch except the last. Under kBalanced and kBudget, it is the most graphs that a
  // batch may hold; kBalanced makes as many batches as kRandom. Without `shuffle`, nothing is dealt, and graphs keep
  // the split's order: kBalanced is the same as kRandom, and kBudget ends a batch before it would exceed a bound. A
  // graph that exceeds a bound by itself is alone in its batch.
  int64_t batch_size = 32;
  uint64_t seed = 0;
  bool shuffle = true;
  // Data parallelism: this process takes a share of every batch. The graphs of a batch are dealt to the ranks in
  // turns, from rank 0 to the last and back again. A batch made by Deal lists its larger graphs first, so the ranks
  // get shares of similar size. Shares differ by at most one graph. If the last batch has fewer graphs than there are
  // ranks, some ranks get none.
  int64_t rank = 0;
  int64_t world_size = 1;
  spec::BatchingOptions batching;  // with shuffle, every single graph must be within the bounds
};

// The graph ids of one epoch, batch after batch, over all ranks.
struct EpochBatches {
  std::vector<uint32_t> graphs;
  std::vector<size_t> ends;  // the end of each batch in `graphs`
  // For each graph, its place in the batch as a job on one rank would order it. Empty if there is only one rank,
  // since `graphs` is then in this order already.
  std::vector<uint32_t> places;
};

// The batches of every epoch over a split. Each epoch has every graph exactly once. Over all ranks together, no batch
// is empty.
class EpochOrder {
 public:
  // Copies `graphs`, the ids of a split. `sizes` holds the size of each graph, in the order of `graphs`. kRandom does
  // not need `sizes`.
  EpochOrder(std::span<const uint32_t> graphs, EpochOrderOptions options, std::vector<GraphSize> sizes = {});

  // Returns the number of batches, which is the same in every epoch.
  int64_t batches_per_epoch() const { return batches_; }
  // Under kBalanced and kBudget, returns the bounds on graphs, nodes and edges that every batch meets, over all ranks
  // together.
  const DealLimits& limits() const { return limits_; }
  // Returns the batches of an epoch. They are the same for equal (seed, epoch, graphs, sizes) on every machine.
  EpochBatches Of(int64_t epoch) const;
  // Returns the graph ids of this rank's share of `batch`, 0..batches_per_epoch()-1. `epoch` must outlive the result.
  std::span<const uint32_t> Batch(const EpochBatches& epoch, int64_t batch) const;
  // Describes a batch as one rank alone would take it.
  struct WholeBatch {
    std::vector<uint32_t> graphs;      // the graph ids over all ranks together
    std::span<const uint32_t> places;  // for each graph of Batch(), its place in `graphs`
  };
  // `epoch`, which several ranks share, must outlive the result.
  WholeBatch Whole(const EpochBatches& epoch, int64_t batch) const;
  // Returns the number of graphs in a batch over all ranks together.
  int64_t Size(const EpochBatches& epoch, int64_t batch) const;
  // Returns what Size() returns under kRandom: batch_size for every batch except the last.
  int64_t RandomSize(int64_t batch) const;
  // Returns how many graphs this rank gets of a batch with `graphs` graphs.
  int64_t ShareOf(int64_t graphs) const;

 private:
  bool is_dealt() const { return options_.shuffle && options_.batching.kind != spec::BatchingKind::kRandom; }
  // Returns this rank's share of the part of `all` that belongs to a batch.
  std::span<const uint32_t> ShareOf(std::span<const uint32_t> all, const EpochBatches& epoch, int64_t batch) const;
  // Returns how many graphs of a batch with `graphs` graphs go to the ranks below `rank`.
  int64_t Before(int64_t rank, int64_t graphs) const;
  // Returns the graphs of an epoch, batch after batch, before they are dealt to ranks.
  EpochBatches Compose(int64_t epoch) const;
  // Deals out the batches under kBalanced and kBudget.
  EpochBatches DealOut(SplitMix64& random) const;
  // Returns the end of each batch under kBudget without `shuffle`.
  std::vector<size_t> Cut() const;

  const std::vector<uint32_t> graphs_;
  const EpochOrderOptions options_;
  const std::vector<GraphSize> sizes_;
  int64_t batches_ = 0;  // of an epoch, over all ranks
  std::vector<size_t> cut_;
  DealLimits limits_;
};

}  // namespace permafrost::data
