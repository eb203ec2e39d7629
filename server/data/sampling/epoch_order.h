// The order of graphs and their batches: known ahead for every planned epoch, since it is a pure function of the seed.
// Threads: pure functions and immutable values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/store/types.h"

namespace permafrost::data {

// Position in a job's sequence of training batches; all that a checkpoint keeps of the order.
struct EpochPosition {
  int64_t epoch = 0;  // from 0
  int64_t batch = 0;  // batches of this epoch already consumed
  auto operator<=>(const EpochPosition&) const = default;
};

struct EpochOrderOptions {
  int64_t batch_size = 32;
  uint64_t seed = 0;
  bool shuffle = true;
  // Data parallelism: this process takes batches rank, rank + world_size, ... of the epoch. Every rank takes equally
  // many, since they average gradients at each step: up to world_size - 1 batches at an epoch's end are left out.
  int64_t rank = 0;
  int64_t world_size = 1;
};

// The batches of every epoch over a split: in each every graph once, the last batch partial (see world_size for the one
// exception).
class EpochOrder {
 public:
  // `graphs`: ids of a split; copied.
  EpochOrder(std::span<const uint32_t> graphs, EpochOrderOptions options);

  // Of this rank.
  int64_t batches_per_epoch() const;
  // Graph ids of all batches of `epoch`, of every rank, in order; the same for equal (seed, epoch, graphs) on every
  // machine.
  std::vector<uint32_t> Of(int64_t epoch) const;
  // Graph ids of this rank's batch `batch`, 0..batches_per_epoch()-1, within the order of an epoch.
  std::span<const uint32_t> Batch(std::span<const uint32_t> order, int64_t batch) const;

 private:
  std::vector<uint32_t> graphs_;
  EpochOrderOptions options_;
};

}  // namespace permafrost::data
