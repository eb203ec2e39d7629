#include "data/store/other_splits.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/status.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {
namespace {

class SetWithSplits final : public DerivedSet {
 public:
  SetWithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits, GraphSetSummary summary, uint64_t checksum)
      : DerivedSet(std::move(set), std::move(summary), checksum), splits_(std::move(splits.rows)) {
    summary_.split_name = std::move(splits.name);
  }

  // Computes the summary's statistics for the new splits. Before this call, the summary has the statistics of the
  // original splits.
  absl::Status Measure() {
    PF_ASSIGN_OR_RETURN(const auto nodes, node_offsets());
    PF_ASSIGN_OR_RETURN(const auto edges, edge_offsets());
    for (size_t i = 0; i < splits_.size(); ++i) summary_.splits[i] = ComputeStatistics(nodes, edges, splits_[i]);
    return CheckIntact();
  }

  absl::StatusOr<std::span<const uint32_t>> split(Split split) const override {
    return std::span(splits_[static_cast<size_t>(split)]);
  }
  absl::StatusOr<std::span<const float>> labels() const override {
    if (summary_.num_targets != set_->summary().num_targets) return std::span<const float>();
    return set_->labels();
  }

 private:
  const std::array<std::vector<uint32_t>, 3> splits_;
};

class GraphWithSummary : public DerivedGraph {
 public:
  GraphWithSummary(std::shared_ptr<const Graph> graph, GraphSummary summary)
      : DerivedGraph(std::move(graph), std::move(summary)) {
    if (view_.num_targets == summary_.num_targets) return;
    view_.num_targets = summary_.num_targets;
    view_.labels = {};
  }
};

class GraphWithSplits final : public GraphWithSummary {
 public:
  GraphWithSplits(std::shared_ptr<const Graph> graph, OtherSplits splits, GraphSummary summary)
      : GraphWithSummary(std::move(graph), std::move(summary)), splits_(std::move(splits.rows)) {
    summary_.split_name = std::move(splits.name);
    for (size_t i = 0; i < splits_.size(); ++i) {
      view_.splits[i] = Column<NodeId>(splits_[i]);
      summary_.split_nodes[i] = std::ssize(splits_[i]);
    }
  }

 private:
  const std::array<std::vector<NodeId>, 3> splits_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const GraphSet>> WithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits,
                                                           GraphSetSummary summary, uint64_t checksum) {
  auto made = std::make_shared<SetWithSplits>(std::move(set), std::move(splits), std::move(summary), checksum);
  PF_RETURN_IF_ERROR(made->Measure());
  return made;
}

std::shared_ptr<const Graph> WithSplits(std::shared_ptr<const Graph> graph, OtherSplits splits, GraphSummary summary) {
  return std::make_shared<GraphWithSplits>(std::move(graph), std::move(splits), std::move(summary));
}

std::shared_ptr<const Graph> WithSummary(std::shared_ptr<const Graph> graph, GraphSummary summary) {
  return std::make_shared<GraphWithSummary>(std::move(graph), std::move(summary));
}

namespace {

// Returns a checksum for the set with these folds.
uint64_t ChecksumOf(const GraphSet& set, const spec::CrossValidation& validation) {
  const uint64_t all[] = {set.checksum(), static_cast<uint64_t>(validation.folds),
                          static_cast<uint64_t>(validation.fold), validation.seed};
  return Hash64(all, sizeof(all));
}

}  // namespace

std::vector<uint32_t> ShuffledByClass(std::span<const float> classes, uint64_t seed) {
  std::vector<uint32_t> shuffled(classes.size());
  std::iota(shuffled.begin(), shuffled.end(), 0u);
  SplitMix64 random(seed, /*stream=*/0);
  Shuffle(std::span(shuffled), random);
  // Sorting by (class, place) keeps the shuffled order within each class.
  std::vector<std::pair<float, size_t>> places;
  for (size_t place = 0; place < shuffled.size(); ++place) {
    const float label = classes[shuffled[place]];
    places.emplace_back(std::isnan(label) ? -std::numeric_limits<float>::infinity() : label, place);
  }
  std::ranges::sort(places);
  std::vector<uint32_t> ordered;
  ordered.reserve(places.size());
  for (const auto& [label, place] : places) ordered.push_back(shuffled[place]);
  return ordered;
}

std::array<std::vector<uint32_t>, 3> DrawFold(const spec::CrossValidation& validation, std::span<const float> classes) {
  const std::vector<uint32_t> ids = ShuffledByClass(classes, validation.seed);
  std::array<std::vector<uint32_t>, 3> splits;
  const auto folds = static_cast<size_t>(validation.folds), test = static_cast<size_t>(validation.fold);
  const size_t valid = (test + 1) % folds;
  for (size_t i = 0; i < ids.size(); ++i) {
    const size_t fold = i % folds;
    const Split split = fold == test ? Split::kTest : fold == valid ? Split::kValid : Split::kTrain;
    splits[static_cast<size_t>(split)].push_back(ids[i]);
  }
  for (auto& split : splits) std::ranges::sort(split);
  return splits;
}

absl::StatusOr<std::shared_ptr<const GraphSet>> WithFold(std::shared_ptr<const GraphSet> set,
                                                         const spec::CrossValidation& validation) {
  if (validation.folds == 0) return set;
  const GraphSetSummary& summary = set->summary();
  if (validation.folds > summary.all.graphs) {
    return absl::InvalidArgumentError(
        absl::StrCat(validation.folds, " folds of a set of ", summary.all.graphs, " graphs"));
  }
  std::vector<float> classes(static_cast<size_t>(summary.all.graphs));
  if (summary.num_targets == 1) {
    PF_ASSIGN_OR_RETURN(const auto labels, set->labels());
    const bool whole = std::ranges::all_of(labels, [](float l) { return std::isnan(l) || std::floor(l) == l; });
    if (whole) classes.assign(labels.begin(), labels.end());
  }
  OtherSplits splits{.rows = DrawFold(validation, classes),
                     .name = absl::StrCat("fold ", validation.fold, " of ", validation.folds)};
  const uint64_t checksum = ChecksumOf(*set, validation);
  return WithSplits(set, std::move(splits), summary, checksum);
}

namespace {

// The number of rows between two calls of keep_going.
constexpr uint64_t kRowsAsked = 1 << 16;
constexpr uint64_t kMaxLinks = std::numeric_limits<uint32_t>::max();

// Returns the generator of a pair's random draws. It is the same for (a, b) and (b, a).
SplitMix64 DrawsOf(uint64_t seed, NodeId a, NodeId b) {
  return {seed, uint64_t{std::min(a, b)} << 32 | std::max(a, b)};
}

// In a symmetric graph, an edge and its inverse are one link, and a draw chooses one of the two edges to stand for
// it. Returns whether the draw chooses the edge from `source` to `target`.
bool IsLinkOfPair(const spec::LinkSplitOptions& options, NodeId source, NodeId target) {
  SplitMix64 draws = DrawsOf(options.seed, source, target);
  draws.Next();
  return (draws.Next() & 1) == (source < target ? 1U : 0U);
}

// The edges that are not held out, as columns.
struct EdgesLeft {
  std::vector<uint64_t> offsets{0};
  std::vector<NodeId> neighbors;
  std::vector<float> weights;
  std::vector<int64_t> timestamps;
  std::vector<uint64_t> edge_ids;  // filled only if edge features are asked for
  int64_t self_loops = 0, isolated_nodes = 0, max_degree = 0;

  void EndRow() {
    const auto degree = static_cast<int64_t>(neighbors.size() - offsets.back());
    isolated_nodes += degree == 0 ? 1 : 0;
    max_degree = std::max(max_degree, degree);
    offsets.push_back(neighbors.size());
  }
};

class MessageGraph final : public DerivedGraph {
 public:
  MessageGraph(const std::shared_ptr<const Graph>& graph, EdgesLeft edges, bool edge_features)
      : DerivedGraph(graph), edges_(std::move(edges)) {
    view_.edges = edges_.neighbors.size();
    view_.in = {.offsets = ColumnOf(edges_.offsets),
                .neighbors = ColumnOf(edges_.neighbors),
                .weights = ColumnOf(edges_.weights),
                .timestamps = ColumnOf(edges_.timestamps),
                .edge_ids = ColumnOf(edges_.edge_ids)};
    view_.out = summary_.symmetric ? view_.in : Adjacency();
    summary_.edges = static_cast<int64_t>(view_.edges);
    summary_.self_loops = edges_.self_loops;
    summary_.isolated_nodes = edges_.isolated_nodes;
    summary_.max_degree = edges_.max_degree;
    DropAllButEdges(edge_features);
  }
  // Makes a graph with all edges of `graph`.
  MessageGraph(const std::shared_ptr<const Graph>& graph, bool edge_features) : DerivedGraph(graph) {
    DropAllButEdges(edge_features);
  }

 private:
  void DropAllButEdges(bool edge_features) {
    if (!edge_features) {
      view_.edge_features = {};
      summary_.edge_features = {};
    }
    view_.num_targets = 0;
    view_.labels = {};
    view_.splits = {};
    // The summary keeps its counts of given links, since the memory that a split takes is computed from these counts.
    view_.given_links = {};
    summary_.num_targets = summary_.num_missing_labels = 0;
    summary_.split_nodes = {};
  }
  template <class T>
  static Column<T> ColumnOf(const std::vector<T>& values) {
    return Column<T>(std::span<const T>(values));
  }

  const EdgesLeft edges_;
};

// Divides the in-edges of `target` into kept edges, which are added to `left`, and edges that are held out.
// split_of(source) returns the split of the edges from `source` to `target`. Calls take(source, split) once for each
// distinct source except `target`. Self-loops are never held out.
template <class SplitOfEdges, class Take>
absl::Status SplitRow(const GraphView& view, bool edge_features, NodeId target, EdgesLeft& left,
                      const SplitOfEdges& split_of, const Take& take) {
  bool ok = true;
  const Adjacency& in = view.in;
  const Adjacency::Extent extent = in.Of(target, ok);
  if (!ok) return in.offsets.status();
  if (!in.neighbors.Touch(extent.begin, extent.end)) return in.neighbors.status();
  const bool weighted = !in.weights.empty(), timed = !in.timestamps.empty();
  if (weighted && !in.weights.Touch(extent.begin, extent.end)) return in.weights.status();
  if (timed && !in.timestamps.Touch(extent.begin, extent.end)) return in.timestamps.status();
  const bool has_ids = edge_features && !in.edge_ids.empty();
  if (has_ids && !in.edge_ids.Touch(extent.begin, extent.end)) return in.edge_ids.status();
  for (uint64_t e = extent.begin; e < extent.end; ++e) {
    const NodeId source = in.neighbors[e];
    const Split split = source == target ? Split::kTrain : split_of(source);
    if (split == Split::kTrain) {
      left.neighbors.push_back(source);
      if (weighted) left.weights.push_back(in.weights[e]);
      if (timed) left.timestamps.push_back(in.timestamps[e]);
      if (edge_features) left.edge_ids.push_back(has_ids ? in.edge_ids[e] : e);
      left.self_loops += source == target ? 1 : 0;
    }
    const bool parallel = e > extent.begin && in.neighbors[e - 1] == source;
    if (source != target && !parallel) take(source, split);
  }
  left.EndRow();
  return absl::OkStatus();
}

EdgesLeft RoomFor(const GraphView& view, bool edge_features) {
  EdgesLeft left;
  left.offsets.reserve(view.nodes + 1);
  left.neighbors.reserve(view.edges);
  if (!view.in.weights.empty()) left.weights.reserve(view.edges);
  if (edge_features) left.edge_ids.reserve(view.edges);
  return left;
}

// Returns the bytes that an EdgesLeft takes if it holds all edges.
uint64_t EdgesLeftBytes(const GraphSummary& graph, bool edge_features) {
  const uint64_t of_edge = sizeof(NodeId) + (edge_features ? sizeof(uint64_t) : 0) +
                           (graph.weighted ? sizeof(float) : 0) + (graph.timestamped ? sizeof(int64_t) : 0);
  return (static_cast<uint64_t>(graph.nodes) + 1) * sizeof(uint64_t) + static_cast<uint64_t>(graph.edges) * of_edge;
}

absl::Status CheckCounts(const LinkSplit& split) {
  for (const auto& links : split.links) {
    if (links.size() < kMaxLinks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the graph has ", links.size(), " links of one split; at most ", kMaxLinks - 1, " are accepted"));
  }
  return absl::OkStatus();
}

// Calls take(link, time) for each link of a graph with timestamps, ordered by target. Links with the same target come
// in the order of the columns.
template <class Take>
absl::Status ForEachTimedLink(const Graph& graph, const spec::LinkSplitOptions& options,
                              const std::function<bool()>& keep_going, const Take& take) {
  const Adjacency& in = graph.view().in;
  const bool symmetric = graph.summary().symmetric;
  for (uint64_t node = 0; node < graph.view().nodes; ++node) {
    if (node % kRowsAsked == 0 && !keep_going()) return absl::CancelledError("stopped while links were divided");
    bool ok = true;
    const auto target = static_cast<NodeId>(node);
    const Adjacency::Extent extent = in.Of(target, ok);
    if (!ok) return in.offsets.status();
    if (!in.neighbors.Touch(extent.begin, extent.end)) return in.neighbors.status();
    if (!in.timestamps.Touch(extent.begin, extent.end)) return in.timestamps.status();
    for (uint64_t e = extent.begin; e < extent.end; ++e) {
      const NodeId source = in.neighbors[e];
      if (source == target || (symmetric && !IsLinkOfPair(options, source, target))) continue;
      take(Link{source, target}, in.timestamps[e]);
    }
  }
  return graph.CheckIntact();
}

// Returns the latest time that remains after the latest `part` (0..1) of the links is cut off. Returns the least
// int64 if no link remains. Reorders `times`.
int64_t TimeBefore(std::vector<int64_t>& times, double part) {
  const auto count = static_cast<double>(times.size());
  const auto first = static_cast<size_t>(count - std::round(count * part));
  if (first == 0) return std::numeric_limits<int64_t>::min();
  const auto at = times.begin() + static_cast<std::ptrdiff_t>(first - 1);
  std::ranges::nth_element(times, at);
  return *at;
}

}  // namespace

Split SplitOf(const spec::LinkSplitOptions& options, NodeId a, NodeId b) {
  const double draw = static_cast<double>(DrawsOf(options.seed, a, b).Next() >> 11) * 0x1p-53;
  if (draw < options.test_part) return Split::kTest;
  return draw < options.test_part + options.valid_part ? Split::kValid : Split::kTrain;
}

absl::StatusOr<LinkSplit> SplitLinks(const std::shared_ptr<const Graph>& graph, const spec::LinkSplitOptions& options,
                                     const std::function<bool()>& keep_going, bool edge_features) {
  const GraphView& view = graph->view();
  const bool symmetric = graph->summary().symmetric;
  EdgesLeft left = RoomFor(view, edge_features);
  LinkSplit split;
  for (uint64_t node = 0; node < view.nodes; ++node) {
    if (node % kRowsAsked == 0 && !keep_going()) return absl::CancelledError("stopped while links were divided");
    const auto target = static_cast<NodeId>(node);
    const auto take = [&](NodeId source, Split of) {
      if (symmetric && !IsLinkOfPair(options, source, target)) return;
      split.links[static_cast<size_t>(of)].push_back({source, target});
    };
    PF_RETURN_IF_ERROR(SplitRow(
        view, edge_features, target, left, [&](NodeId source) { return SplitOf(options, source, target); }, take));
  }
  PF_RETURN_IF_ERROR(graph->CheckIntact());
  PF_RETURN_IF_ERROR(CheckCounts(split));
  split.messages = std::make_shared<MessageGraph>(graph, std::move(left), edge_features);
  return split;
}

absl::StatusOr<LinkSplit> TakeGivenLinks(const std::shared_ptr<const Graph>& graph,
                                         const std::function<bool()>& keep_going, bool edge_features) {
  const GraphView& view = graph->view();
  LinkSplit split;
  // The keys of both directions of each held-out link, sorted by target.
  std::vector<uint64_t> held_out;
  const auto key = [](NodeId source, NodeId target) { return uint64_t{target} << 32 | source; };
  for (size_t of = 0; of < split.links.size(); ++of) {
    const Column<NodeId>& ends = view.given_links.links[of];
    if (!ends.Touch(0, ends.size())) return ends.status();
    split.links[of].reserve(ends.size() / 2);
    for (uint64_t i = 0; i + 1 < ends.size(); i += 2) split.links[of].push_back({ends[i], ends[i + 1]});
    if (of == static_cast<size_t>(Split::kTrain)) continue;
    for (const Link& link : split.links[of]) {
      held_out.push_back(key(link.source, link.target));
      held_out.push_back(key(link.target, link.source));
    }
  }
  std::ranges::sort(held_out);
  EdgesLeft left = RoomFor(view, edge_features);
  auto row = held_out.begin();
  for (uint64_t node = 0; node < view.nodes; ++node) {
    if (node % kRowsAsked == 0 && !keep_going()) return absl::CancelledError("stopped while links were divided");
    const auto target = static_cast<NodeId>(node);
    const auto end = std::upper_bound(row, held_out.end(), key(std::numeric_limits<NodeId>::max(), target));
    const auto split_of = [&](NodeId source) {
      return std::binary_search(row, end, key(source, target)) ? Split::kTest : Split::kTrain;
    };
    PF_RETURN_IF_ERROR(SplitRow(view, edge_features, target, left, split_of, [](NodeId, Split) {}));
    row = end;
  }
  PF_RETURN_IF_ERROR(graph->CheckIntact());
  split.messages = std::make_shared<MessageGraph>(graph, std::move(left), edge_features);
  return split;
}

absl::StatusOr<LinkSplit> SplitLinksByTime(const std::shared_ptr<const Graph>& graph,
                                           const spec::LinkSplitOptions& options,
                                           const std::function<bool()>& keep_going, bool edge_features) {
  if (graph->view().in.timestamps.size() != graph->view().in.neighbors.size()) {
    return absl::InvalidArgumentError("the graph's edges have no timestamps to divide its links by");
  }
  std::vector<int64_t> all;
  PF_RETURN_IF_ERROR(
      ForEachTimedLink(*graph, options, keep_going, [&](const Link&, int64_t time) { all.push_back(time); }));
  const int64_t last_valid = TimeBefore(all, options.test_part);
  const int64_t last_train = TimeBefore(all, options.test_part + options.valid_part);
  std::vector<int64_t>().swap(all);  // unlike `= {}`, this frees the memory before split.links grows
  LinkSplit split;
  PF_RETURN_IF_ERROR(ForEachTimedLink(*graph, options, keep_going, [&](const Link& link, int64_t time) {
    const Split of = time <= last_train ? Split::kTrain : time <= last_valid ? Split::kValid : Split::kTest;
    split.links[static_cast<size_t>(of)].push_back(link);
    split.times[static_cast<size_t>(of)].push_back(time);
  }));
  PF_RETURN_IF_ERROR(CheckCounts(split));
  split.messages = std::make_shared<MessageGraph>(graph, edge_features);
  return split;
}

uint64_t TimedLinkSplitBytes(const GraphSummary& graph) {
  const auto links = static_cast<uint64_t>(graph.symmetric ? graph.edges / 2 : graph.edges);
  // While they grow, both vectors may have twice the capacity that they need.
  return 2 * links * (sizeof(Link) + sizeof(int64_t));
}

uint64_t LinkSplitBytes(const GraphSummary& graph, bool edge_features) {
  const auto edges = static_cast<uint64_t>(graph.edges);
  return EdgesLeftBytes(graph, edge_features) + (graph.symmetric ? edges / 2 : edges) * sizeof(Link);
}

uint64_t GivenLinksBytes(const GraphSummary& graph, bool edge_features) {
  uint64_t links = 0, held_out = 0;
  for (const Split split : {Split::kTrain, Split::kValid, Split::kTest}) {
    const auto count = static_cast<uint64_t>(graph.links.of(split).links);
    links += count;
    if (split != Split::kTrain) held_out += count;
  }
  // While it grows, the vector of keys may have twice the capacity that it needs.
  return EdgesLeftBytes(graph, edge_features) + links * sizeof(Link) + 4 * held_out * sizeof(uint64_t);
}

bool HasEdge(const GraphView& view, NodeId source, NodeId target, bool& ok) {
  const Adjacency::Extent extent = view.in.Of(target, ok);
  if (!ok || extent.size() == 0) return false;
  if (!view.in.neighbors.Touch(extent.begin, extent.end)) {
    ok = false;
    return false;
  }
  const NodeId* const neighbors = view.in.neighbors.data();
  return std::binary_search(neighbors + extent.begin, neighbors + extent.end, source);
}

}  // namespace permafrost::data
