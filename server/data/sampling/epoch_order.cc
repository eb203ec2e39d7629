#include "data/sampling/epoch_order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace permafrost::data {
namespace {

// Graphs by batch, the batches in another order.
EpochBatches Collect(std::span<const uint32_t> graphs, std::span<const uint32_t> order,
                     std::span<const uint32_t> batch_of, int64_t batches, SplitMix64& random) {
  std::vector<size_t> place(static_cast<size_t>(batches));
  std::iota(place.begin(), place.end(), size_t{0});
  Shuffle(std::span(place), random);
  EpochBatches epoch{.graphs = std::vector<uint32_t>(order.size()), .ends = std::vector<size_t>(place.size())};
  for (const uint32_t batch : batch_of) ++epoch.ends[place[batch]];
  std::exclusive_scan(epoch.ends.begin(), epoch.ends.end(), epoch.ends.begin(), size_t{0});
  for (size_t i = 0; i < order.size(); ++i) epoch.graphs[epoch.ends[place[batch_of[i]]]++] = graphs[order[i]];
  return epoch;
}

}  // namespace

EpochOrder::EpochOrder(std::span<const uint32_t> graphs, EpochOrderOptions options, std::vector<GraphSize> sizes)
    : graphs_(graphs.begin(), graphs.end()), options_(options), sizes_(std::move(sizes)) {
  const auto count = static_cast<int64_t>(graphs_.size());
  batches_ = (count + options_.batch_size - 1) / options_.batch_size;
  if (!is_dealt()) {
    if (options_.batching.kind == spec::BatchingKind::kBudget) {
      cut_ = Cut();
      batches_ = std::ssize(cut_);
    }
    return;
  }
  limits_ = {.graphs = options_.batch_size, .nodes = options_.batching.max_nodes, .edges = options_.batching.max_edges};
  if (options_.batching.kind == spec::BatchingKind::kBudget) batches_ = LeastBatches(sizes_, limits_);
  limits_ = TightLimits(sizes_, batches_, limits_);
}

EpochBatches EpochOrder::Of(int64_t epoch) const {
  SplitMix64 random(options_.seed, static_cast<uint64_t>(epoch));
  if (is_dealt()) return DealOut(random);
  EpochBatches out{.graphs = graphs_, .ends = cut_};
  if (!cut_.empty()) return out;
  if (options_.shuffle) Shuffle(std::span(out.graphs), random);
  const auto size = static_cast<size_t>(options_.batch_size);
  for (size_t end = 0; end < out.graphs.size();) {
    end = std::min(end + size, out.graphs.size());
    out.ends.push_back(end);
  }
  return out;
}

std::vector<size_t> EpochOrder::Cut() const {
  const auto most = [](int64_t bound) { return bound > 0 ? bound : std::numeric_limits<int64_t>::max(); };
  const GraphSize bounds{most(options_.batching.max_nodes), most(options_.batching.max_edges)};
  std::vector<size_t> ends;
  GraphSize sum;
  size_t begin = 0;
  for (size_t i = 0; i < sizes_.size(); ++i) {
    const GraphSize& size = sizes_[i];
    const bool is_full = static_cast<int64_t>(i - begin) == options_.batch_size ||
                         sum.nodes + size.nodes > bounds.nodes || sum.edges + size.edges > bounds.edges;
    if (i > begin && is_full) {
      ends.push_back(i);
      begin = i;
      sum = {};
    }
    sum.nodes += size.nodes;
    sum.edges += size.edges;
  }
  if (!sizes_.empty()) ends.push_back(sizes_.size());
  return ends;
}

EpochBatches EpochOrder::DealOut(SplitMix64& random) const {
  std::vector<uint32_t> order(graphs_.size());
  std::iota(order.begin(), order.end(), 0U);
  Shuffle(std::span(order), random);
  LargerFirst(sizes_, order);
  auto batch_of = Deal(sizes_, order, batches_, limits_);
  if (!batch_of) {
    // Dealt like this, the batches' sizes are those that the limits were made of.
    LargestFirst(sizes_, order);
    batch_of = Deal(sizes_, order, batches_, limits_);
  }
  return Collect(graphs_, order, *batch_of, batches_, random);
}

std::span<const uint32_t> EpochOrder::Batch(const EpochBatches& epoch, int64_t batch) const {
  const auto index = static_cast<size_t>(batch * options_.world_size + options_.rank);
  const size_t begin = index == 0 ? 0 : epoch.ends[index - 1];
  return std::span(epoch.graphs).subspan(begin, epoch.ends[index] - begin);
}

}  // namespace permafrost::data
