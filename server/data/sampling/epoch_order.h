// The order of graphs and their batches: known ahead for every planned epoch, since it is a pure function of the seed.
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

// Graphs dealt into batches of nearly equal size: the larger of them first, each to the batch with the least so far.
// Source: Graham 1969, "Bounds on multiprocessing timing anomalies" (longest processing time first).
// Threads: pure functions.
struct GraphSize {
  int64_t nodes = 0, edges = 0;
  bool operator==(const GraphSize&) const = default;
};

// The most that a batch may hold; 0: no bound.
struct DealLimits {
  int64_t graphs = 0, nodes = 0, edges = 0;
};

// `order` lists graphs by their index in `sizes`. Brings the larger to the front, by classes of size (nodes and edges)
// that lie 10 % apart, so that graphs of nearly equal size stay in their order.
void LargerFirst(std::span<const GraphSize> sizes, std::span<uint32_t> order);
// The same by size itself: only graphs of equal size stay in their order, so that the sizes of what Deal makes of it
// are the same for every order.
void LargestFirst(std::span<const GraphSize> sizes, std::span<uint32_t> order);

// The batch, 0..batches-1, of each entry of `order`: the one whose nodes or edges, whichever are the larger part of the
// mean batch's, are the least so far. No batch is empty if there are as many graphs. O(n log n). nullopt: a limit is in
// the way.
std::optional<std::vector<uint32_t>> Deal(std::span<const GraphSize> sizes, std::span<const uint32_t> order,
                                          int64_t batches, const DealLimits& limits);

// Returns the least number of batches that bisection finds for which Deal keeps LargestFirst within the limits. No
// limit may be below one graph.
int64_t LeastBatches(std::span<const GraphSize> sizes, const DealLimits& limits);

// Limits that Deal of LargestFirst into `batches` keeps, with little room more, and that are within `limits`, which it
// keeps too.
DealLimits TightLimits(std::span<const GraphSize> sizes, int64_t batches, const DealLimits& limits);

// Position in a job's sequence of training batches; all that a checkpoint keeps of the order.
struct EpochPosition {
  int64_t epoch = 0;  // from 0
  int64_t batch = 0;  // batches of this epoch already consumed
  auto operator<=>(const EpochPosition&) const = default;
};

struct EpochOrderOptions {
  // Graphs a batch, but for the last one; of kBalanced on the mean, of kBudget at most. In the split's own order,
  // without shuffle, nothing is dealt: kBudget cuts it before a bound would be passed, and a graph beyond a bound is
  // alone in its batch; kBalanced is as kRandom.
  int64_t batch_size = 32;
  uint64_t seed = 0;
  bool shuffle = true;
  // Data parallelism: this process takes a share of every batch. Its graphs are dealt to the ranks in turns, 0 to the
  // last and back, so that those of a dealt batch, where the larger come first, are shared evenly. Shares differ by at
  // most one graph; the last batch may have less graphs than there are ranks, and leave some no graph.
  int64_t rank = 0;
  int64_t world_size = 1;
  spec::BatchingOptions batching;  // with shuffle no bound of it is less than a graph
};

// One epoch's graph ids, batch after batch, of every rank.
struct EpochBatches {
  std::vector<uint32_t> graphs;
  std::vector<size_t> ends;  // of each batch, in `graphs`
};

// The batches of every epoch over a split: in each every graph once. No batch is empty, of all ranks together.
class EpochOrder {
 public:
  // `graphs`: ids of a split; copied. `sizes`: theirs, in their order; not needed for kRandom.
  EpochOrder(std::span<const uint32_t> graphs, EpochOrderOptions options, std::vector<GraphSize> sizes = {});

  // The number of batches, the same in every epoch.
  int64_t batches_per_epoch() const { return batches_; }
  // Under kBalanced and kBudget no batch of any epoch holds more, of all ranks together; graphs, nodes and edges are
  // all bounded.
  const DealLimits& limits() const { return limits_; }
  // The same for equal (seed, epoch, graphs, sizes) on every machine.
  EpochBatches Of(int64_t epoch) const;
  // Returns the graph ids of this rank's share of `batch`, 0..batches_per_epoch()-1. `epoch` must outlive them.
  std::span<const uint32_t> Batch(const EpochBatches& epoch, int64_t batch) const;
  // The graphs of a batch on all ranks together.
  int64_t Size(const EpochBatches& epoch, int64_t batch) const;
  // Returns Size() of an order of kRandom, whose batches are all full but the last.
  int64_t RandomSize(int64_t batch) const;
  // Returns how many of a batch's `graphs` are this rank's.
  int64_t ShareOf(int64_t graphs) const;

 private:
  bool is_dealt() const { return options_.shuffle && options_.batching.kind != spec::BatchingKind::kRandom; }
  // Returns how many of a batch's `graphs` are those of the ranks before `rank`.
  int64_t Before(int64_t rank, int64_t graphs) const;
  // The graphs of an epoch, batch after batch.
  EpochBatches Compose(int64_t epoch) const;
  // Deals out the batches under kBalanced and kBudget.
  EpochBatches DealOut(SplitMix64& random) const;
  // Returns the end of each batch under kBudget in the split's order.
  std::vector<size_t> Cut() const;

  const std::vector<uint32_t> graphs_;
  const EpochOrderOptions options_;
  const std::vector<GraphSize> sizes_;
  int64_t batches_ = 0;  // of an epoch, of every rank
  std::vector<size_t> cut_;
  DealLimits limits_;
};

}  // namespace permafrost::data
