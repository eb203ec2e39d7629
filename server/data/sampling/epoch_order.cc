#include "data/sampling/epoch_order.h"

#include <algorithm>

#include "base/random.h"

namespace permafrost::data {

EpochOrder::EpochOrder(std::span<const uint32_t> graphs, EpochOrderOptions options)
    : graphs_(graphs.begin(), graphs.end()), options_(options) {}

int64_t EpochOrder::batches_per_epoch() const {
  const auto graphs = static_cast<int64_t>(graphs_.size());
  const int64_t batches = (graphs + options_.batch_size - 1) / options_.batch_size;
  return batches / options_.world_size;
}

std::vector<uint32_t> EpochOrder::Of(int64_t epoch) const {
  std::vector<uint32_t> order = graphs_;
  if (options_.shuffle) {
    SplitMix64 random(options_.seed, static_cast<uint64_t>(epoch));
    Shuffle(std::span(order), random);
  }
  return order;
}

std::span<const uint32_t> EpochOrder::Batch(std::span<const uint32_t> order, int64_t batch) const {
  const auto size = static_cast<size_t>(options_.batch_size);
  const size_t first = static_cast<size_t>(batch * options_.world_size + options_.rank) * size;
  return order.subspan(first, std::min(size, order.size() - first));
}

}  // namespace permafrost::data
