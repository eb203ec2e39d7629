// The order of graphs and their batches: known ahead for every planned epoch, since it is a pure function of the seed.
// Threads: pure functions and immutable values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "data/sampling/deal.h"
#include "data/store/types.h"
#include "spec/sampling.h"

namespace permafrost::data {

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
  // Data parallelism: this process takes batches rank, rank + world_size, ... of the epoch. Every rank takes equally
  // many, since they average gradients at each step: up to world_size - 1 batches at an epoch's end are left out.
  int64_t rank = 0;
  int64_t world_size = 1;
  spec::BatchingOptions batching;  // with shuffle no bound of it is less than a graph
};

// One epoch's graph ids, batch after batch, of every rank.
struct EpochBatches {
  std::vector<uint32_t> graphs;
  std::vector<size_t> ends;  // of each batch, in `graphs`
};

// The batches of every epoch over a split: in each every graph once (see world_size for the one exception). No batch is
// empty.
class EpochOrder {
 public:
  // `graphs`: ids of a split; copied. `sizes`: theirs, in their order; not needed for kRandom.
  EpochOrder(std::span<const uint32_t> graphs, EpochOrderOptions options, std::vector<GraphSize> sizes = {});

  // The number of batches of this rank, the same in every epoch.
  int64_t batches_per_epoch() const { return batches_ / options_.world_size; }
  // Under kBalanced and kBudget no batch of any epoch holds more; graphs, nodes and edges are all bounded.
  const DealLimits& limits() const { return limits_; }
  // The same for equal (seed, epoch, graphs, sizes) on every machine.
  EpochBatches Of(int64_t epoch) const;
  // Graph ids of this rank's batch `batch`, 0..batches_per_epoch()-1, of an epoch, which outlives them.
  std::span<const uint32_t> Batch(const EpochBatches& epoch, int64_t batch) const;

 private:
  bool is_dealt() const { return options_.shuffle && options_.batching.kind != spec::BatchingKind::kRandom; }
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
