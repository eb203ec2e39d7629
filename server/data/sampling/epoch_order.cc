#include "data/sampling/epoch_order.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

namespace permafrost::data {
namespace {

int64_t RowsOf(const GraphSize& size) { return size.nodes + size.edges; }

// Returns the sizes at which size classes begin, ascending, up to `largest`. It uses integers, so every machine gets
// the same classes.
std::vector<int64_t> ClassesUpTo(int64_t largest) {
  std::vector<int64_t> begins{0};
  while (begins.back() < largest) begins.push_back(std::max(begins.back() + 1, begins.back() + begins.back() / 10));
  return begins;
}

// The load of a batch to which graphs are dealt.
struct Load {
  double part = 0;  // its part of all nodes or its part of all edges, whichever is larger
  int64_t graphs = 0;
  uint32_t batch = 0;
  // The batch with fewer graphs comes first if two batches have equal parts. An empty batch thus comes before a batch
  // of graphs without nodes.
  bool operator>(const Load& other) const {
    return std::tie(part, graphs, batch) > std::tie(other.part, other.graphs, other.batch);
  }
};

double PartOf(int64_t rows, int64_t total) {
  return total > 0 ? static_cast<double>(rows) / static_cast<double>(total) : 0;
}

bool Exceeds(int64_t value, int64_t limit) { return limit > 0 && value > limit; }

int64_t Parts(int64_t total, int64_t limit) { return limit > 0 ? (total + limit - 1) / limit : 0; }

std::vector<uint32_t> LargestOf(std::span<const GraphSize> sizes) {
  std::vector<uint32_t> order(sizes.size());
  std::iota(order.begin(), order.end(), 0U);
  LargestFirst(sizes, order);
  return order;
}

// Sorts graphs by a key in descending order and keeps the order of equal keys. std::stable_sort is not used, because
// clang-tidy reports its use on a span as a call of a deprecated function.
template <class KeyOf>
void SortDescending(std::span<uint32_t> order, const KeyOf& key_of) {
  const std::vector<uint32_t> before(order.begin(), order.end());
  std::vector<uint32_t> places(order.size());
  std::iota(places.begin(), places.end(), 0U);
  std::ranges::sort(places, [&](uint32_t a, uint32_t b) {
    const auto key_a = key_of(before[a]), key_b = key_of(before[b]);
    return key_a != key_b ? key_a > key_b : a < b;
  });
  for (size_t i = 0; i < order.size(); ++i) order[i] = before[places[i]];
}

GraphSize Total(std::span<const GraphSize> sizes) {
  GraphSize total;
  for (const GraphSize& size : sizes) total = {total.nodes + size.nodes, total.edges + size.edges};
  return total;
}

}  // namespace

void LargerFirst(std::span<const GraphSize> sizes, std::span<uint32_t> order) {
  int64_t largest = 0;
  for (const GraphSize& size : sizes) largest = std::max(largest, RowsOf(size));
  const std::vector<int64_t> classes = ClassesUpTo(largest);
  std::vector<uint32_t> class_of(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    class_of[i] = static_cast<uint32_t>(std::ranges::upper_bound(classes, RowsOf(sizes[i])) - classes.begin());
  }
  SortDescending(order, [&class_of](uint32_t graph) { return class_of[graph]; });
}

void LargestFirst(std::span<const GraphSize> sizes, std::span<uint32_t> order) {
  SortDescending(order, [&sizes](uint32_t graph) { return std::pair(RowsOf(sizes[graph]), sizes[graph].nodes); });
}

std::optional<std::vector<uint32_t>> Deal(std::span<const GraphSize> sizes, std::span<const uint32_t> order,
                                          int64_t batches, const DealLimits& limits) {
  const GraphSize total = Total(sizes);
  std::vector<GraphSize> held(static_cast<size_t>(batches));
  std::vector<Load> empty(held.size());
  for (size_t b = 0; b < empty.size(); ++b) empty[b].batch = static_cast<uint32_t>(b);
  std::priority_queue<Load, std::vector<Load>, std::greater<>> open(std::greater<>(), std::move(empty));
  std::vector<uint32_t> batch_of;
  batch_of.reserve(order.size());
  for (const uint32_t graph : order) {
    if (open.empty()) return std::nullopt;
    Load load = open.top();
    open.pop();
    GraphSize& batch = held[load.batch];
    batch = {batch.nodes + sizes[graph].nodes, batch.edges + sizes[graph].edges};
    if (Exceeds(batch.nodes, limits.nodes) || Exceeds(batch.edges, limits.edges)) return std::nullopt;
    batch_of.push_back(load.batch);
    load.part = std::max(PartOf(batch.nodes, total.nodes), PartOf(batch.edges, total.edges));
    if (++load.graphs != limits.graphs) open.push(load);
  }
  return batch_of;
}

int64_t LeastBatches(std::span<const GraphSize> sizes, const DealLimits& limits) {
  const GraphSize total = Total(sizes);
  const auto graphs = static_cast<int64_t>(sizes.size());
  const std::vector<uint32_t> order = LargestOf(sizes);
  // `too_few` batches are known not to suffice, and `enough` batches are known to suffice. One batch per graph always
  // suffices.
  int64_t too_few = std::max({Parts(graphs, limits.graphs), Parts(total.nodes, limits.nodes),
                              Parts(total.edges, limits.edges), std::min<int64_t>(graphs, 1)}) -
                    1;
  int64_t enough = too_few + 1;
  for (int64_t step = 1; enough < graphs && !Deal(sizes, order, enough, limits); step *= 2) {
    too_few = enough;
    enough = std::min(enough + step, graphs);
  }
  while (enough - too_few > 1) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    (Deal(sizes, order, middle, limits) ? enough : too_few) = middle;
  }
  return enough;
}

DealLimits TightLimits(std::span<const GraphSize> sizes, int64_t batches, const DealLimits& limits) {
  // The limits leave 1/kRoom of the mean batch as room above the fullest batch. Deals of other orders, in which
  // graphs of nearly equal size are swapped, need this room.
  constexpr int64_t kRoom = 256;
  const std::vector<uint32_t> order = LargestOf(sizes);
  const auto batch_of = Deal(sizes, order, batches, limits);
  if (!batch_of || batches == 0) return limits;
  std::vector<GraphSize> held(static_cast<size_t>(batches));
  for (size_t i = 0; i < order.size(); ++i) {
    GraphSize& batch = held[(*batch_of)[i]];
    batch = {batch.nodes + sizes[order[i]].nodes, batch.edges + sizes[order[i]].edges};
  }
  const GraphSize total = Total(sizes);
  const auto tight = [batches](int64_t most, int64_t all, int64_t limit) {
    const int64_t bound = std::max<int64_t>(most + all / batches / kRoom, 1);
    return limit > 0 ? std::min(bound, limit) : bound;
  };
  return {.graphs = limits.graphs,
          .nodes = tight(std::ranges::max(held, {}, &GraphSize::nodes).nodes, total.nodes, limits.nodes),
          .edges = tight(std::ranges::max(held, {}, &GraphSize::edges).edges, total.edges, limits.edges)};
}

namespace {

// Lists the graphs batch by batch, with the batches in a random order.
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
  EpochBatches out = Compose(epoch);
  if (options_.world_size == 1) return out;
  // Within each batch, lists the graphs rank by rank.
  const std::vector<uint32_t> graphs = out.graphs;
  out.places.resize(graphs.size());
  const auto ranks = static_cast<size_t>(options_.world_size);
  size_t begin = 0, to = 0;
  for (const size_t end : out.ends) {
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t turn = 0; begin + turn * ranks < end; ++turn) {
        const size_t from = begin + turn * ranks + (turn % 2 == 0 ? rank : ranks - 1 - rank);
        if (from >= end) continue;
        out.places[to] = static_cast<uint32_t>(from - begin);
        out.graphs[to++] = graphs[from];
      }
    }
    begin = end;
  }
  return out;
}

EpochBatches EpochOrder::Compose(int64_t epoch) const {
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
    // The limits were computed from a deal that made batches of these sizes, so the deal succeeds.
    LargestFirst(sizes_, order);
    batch_of = Deal(sizes_, order, batches_, limits_);
  }
  return Collect(graphs_, order, *batch_of, batches_, random);
}

int64_t EpochOrder::Size(const EpochBatches& epoch, int64_t batch) const {
  const auto index = static_cast<size_t>(batch);
  return static_cast<int64_t>(epoch.ends[index] - (index == 0 ? 0 : epoch.ends[index - 1]));
}

int64_t EpochOrder::RandomSize(int64_t batch) const {
  return std::min(options_.batch_size, std::ssize(graphs_) - batch * options_.batch_size);
}

// In each whole turn, every rank gets one graph. A partial turn at the end gives one more graph to the ranks that it
// reaches. Odd turns run backwards.
int64_t EpochOrder::Before(int64_t rank, int64_t graphs) const {
  const int64_t ranks = options_.world_size, turns = graphs / ranks, rest = graphs % ranks;
  return rank * turns + (turns % 2 == 0 ? std::min(rank, rest) : rank - std::min(rank, ranks - rest));
}

int64_t EpochOrder::ShareOf(int64_t graphs) const {
  return Before(options_.rank + 1, graphs) - Before(options_.rank, graphs);
}

std::span<const uint32_t> EpochOrder::ShareOf(std::span<const uint32_t> all, const EpochBatches& epoch,
                                              int64_t batch) const {
  const int64_t size = Size(epoch, batch), begin = static_cast<int64_t>(epoch.ends[static_cast<size_t>(batch)]) - size;
  return all.subspan(static_cast<size_t>(begin + Before(options_.rank, size)), static_cast<size_t>(ShareOf(size)));
}

std::span<const uint32_t> EpochOrder::Batch(const EpochBatches& epoch, int64_t batch) const {
  return ShareOf(epoch.graphs, epoch, batch);
}

EpochOrder::WholeBatch EpochOrder::Whole(const EpochBatches& epoch, int64_t batch) const {
  const auto size = static_cast<size_t>(Size(epoch, batch));
  const size_t begin = epoch.ends[static_cast<size_t>(batch)] - size;
  WholeBatch whole{.graphs = std::vector<uint32_t>(size), .places = ShareOf(epoch.places, epoch, batch)};
  for (size_t i = begin; i < begin + size; ++i) whole.graphs[epoch.places[i]] = epoch.graphs[i];
  return whole;
}

}  // namespace permafrost::data
