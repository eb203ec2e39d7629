#include "data/sampling/link_sampling.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/sampling/edge_draw.h"
#include "data/store/other_splits.h"

namespace permafrost::data {
namespace {

// Returns the target node of in-edge number `place`.
NodeId TargetOf(const GraphView& view, uint64_t place, bool& ok) {
  uint64_t low = 0, high = view.nodes;  // the node is in [low, high)
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    const Adjacency::Extent extent = view.in.Of(static_cast<NodeId>(middle), ok);
    if (!ok) return 0;
    (place < extent.begin ? high : low) = middle;
  }
  return static_cast<NodeId>(low);
}

absl::Status DamageOf(const Adjacency& in) {
  PF_RETURN_IF_ERROR(in.offsets.status());
  return in.neighbors.status();
}

// The number of nodes whose edges are read between two calls of keep_going.
constexpr uint64_t kNodesAsked = 1 << 16;

// Returns the sources of a node's in-edges, or nullopt if they cannot be read.
std::optional<std::span<const NodeId>> SourcesOf(const Adjacency& in, NodeId node) {
  bool ok = true;
  const Adjacency::Extent extent = in.Of(node, ok);
  if (!ok || !in.neighbors.Touch(extent.begin, extent.end)) return std::nullopt;
  return std::span(in.neighbors.data() + extent.begin, extent.size());
}

}  // namespace

absl::StatusOr<std::vector<uint32_t>> CountNonNeighbors(const GraphView& view,
                                                        const std::function<bool()>& keep_going) {
  std::vector<uint32_t> counts(view.nodes, static_cast<uint32_t>(std::max<uint64_t>(view.nodes, 1) - 1));
  for (uint64_t target = 0; target < view.nodes; ++target) {
    if (target % kNodesAsked == 0 && !keep_going()) return absl::CancelledError("counting neighbours stopped");
    const auto sources = SourcesOf(view.in, static_cast<NodeId>(target));
    if (!sources) return DamageOf(view.in);
    // Parallel edges stand side by side, so comparing with the last source skips them.
    NodeId last = static_cast<NodeId>(target);
    for (const NodeId source : *sources) {
      if (source != last && source != target && source < view.nodes && counts[source] > 0) --counts[source];
      last = source;
    }
  }
  return counts;
}

absl::StatusOr<std::vector<NodeId>> NodesLinkedToAll(const GraphView& view, const std::function<bool()>& keep_going) {
  std::vector<NodeId> left;
  for (uint64_t target = 0; target < view.nodes; ++target) {
    if (target % kNodesAsked == 0 && !keep_going()) return absl::CancelledError("the search for hubs stopped");
    const auto node = static_cast<NodeId>(target);
    const auto sources = SourcesOf(view.in, node);
    if (!sources) return DamageOf(view.in);
    if (target == 0) {
      left.assign(sources->begin(), sources->end());
      left.push_back(node);
      std::ranges::sort(left);
      left.erase(std::ranges::unique(left).begin(), left.end());
    } else {
      std::erase_if(left,
                    [&](NodeId source) { return source != node && !std::ranges::binary_search(*sources, source); });
    }
    if (left.empty()) break;
  }
  return left;
}

NegativeDraw::NegativeDraw(std::shared_ptr<const Graph> graph, spec::NegativeSampling sampling, uint64_t seed,
                           std::shared_ptr<const std::vector<uint32_t>> non_neighbors)
    : graph_(std::move(graph)), sampling_(sampling), seed_(seed), non_neighbors_(std::move(non_neighbors)) {}

absl::StatusOr<bool> NegativeDraw::Draw(NodeId source, uint64_t key, std::span<NodeId> targets) const {
  std::ranges::fill(targets, source);
  if (non_neighbors_ != nullptr && (*non_neighbors_)[source] == 0) return false;
  SplitMix64 random(seed_, key);
  bool ok = true;
  const auto is_negative = [&](NodeId target) { return target != source && !HasEdge(view_, source, target, ok); };
  for (NodeId& target : targets) {
    bool found = false;
    for (int i = 0; i < kTries && !found && ok; ++i) {
      target = sampling_ == spec::NegativeSampling::kDegree
                   ? TargetOf(view_, ScaleBits(random.Next(), view_.edges), ok)
                   : static_cast<NodeId>(ScaleBits(random.Next(), view_.nodes));
      found = is_negative(target);
    }
    const NodeId last = target;
    for (uint64_t i = 1; i < view_.nodes && !found && ok; ++i) {
      target = static_cast<NodeId>((last + i) % view_.nodes);
      found = is_negative(target);
    }
    if (!ok) return DamageOf(view_.in);
    if (found) continue;
    std::ranges::fill(targets, source);
    return false;
  }
  return true;
}

namespace {

// ExcludeEdges for disjoint sampling, where the node of one seed may also occur in the subgraphs of other seeds.
void ExcludeNodes(const SeedPairs& pairs, SampledSubgraph& subgraph) {
  std::vector<std::pair<NodeId, NodeId>> gone;  // (target, source)
  gone.reserve(2 * pairs.sources.size());
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    const NodeId source = subgraph.nodes[static_cast<size_t>(pairs.sources[i])];
    const NodeId target = subgraph.nodes[static_cast<size_t>(pairs.targets[i])];
    gone.emplace_back(target, source);
    gone.emplace_back(source, target);
  }
  std::ranges::sort(gone);
  const bool placed = !subgraph.edge_places.empty();
  const size_t inner = subgraph.sources.size();
  size_t kept = 0, kept_inner = 0, begin = 0;
  for (size_t row = 0; row + 1 < subgraph.offsets.size(); ++row) {
    const auto end = static_cast<size_t>(subgraph.offsets[row + 1]);
    for (size_t e = begin; e < end; ++e) {
      const NodeId source =
          e < inner ? subgraph.nodes[static_cast<size_t>(subgraph.sources[e])] : subgraph.last_neighbors[e - inner];
      if (std::ranges::binary_search(gone, std::pair(subgraph.nodes[row], source))) continue;
      if (placed) subgraph.edge_places[kept] = subgraph.edge_places[e];
      if (e < inner) {
        subgraph.sources[kept_inner++] = subgraph.sources[e];
      } else {
        subgraph.last_neighbors[kept - kept_inner] = source;
      }
      ++kept;
    }
    begin = end;
    subgraph.offsets[row + 1] = static_cast<int64_t>(kept);
  }
  subgraph.sources.resize(kept_inner);
  subgraph.last_neighbors.resize(kept - kept_inner);
  if (placed) subgraph.edge_places.resize(kept);
}

}  // namespace

void ExcludeEdges(const SeedPairs& pairs, SampledSubgraph& subgraph) {
  if (!subgraph.owners.empty()) return ExcludeNodes(pairs, subgraph);
  std::vector<std::pair<int64_t, int64_t>> edges;  // (target, source)
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    edges.emplace_back(pairs.targets[i], pairs.sources[i]);
    edges.emplace_back(pairs.sources[i], pairs.targets[i]);
  }
  std::ranges::sort(edges);
  const bool placed = !subgraph.edge_places.empty();
  ptrdiff_t kept = 0;
  size_t next = 0;
  const auto take = [&](size_t e) {
    const auto to = static_cast<size_t>(kept);
    subgraph.sources[to] = subgraph.sources[e];
    if (placed) subgraph.edge_places[to] = subgraph.edge_places[e];
    ++kept;
  };
  // Only the rows of seeds have edges to exclude. The loop reads each offset before it overwrites it.
  const auto seeds = static_cast<size_t>(subgraph.row_ends.front());
  size_t begin = 0;
  for (size_t row = 0; row < seeds; ++row) {
    const auto end = static_cast<size_t>(subgraph.offsets[row + 1]);
    const size_t first = next;
    while (next < edges.size() && edges[next].first == static_cast<int64_t>(row)) ++next;
    const auto of_row = std::span(edges).subspan(first, next - first);
    for (size_t e = begin; e < end; ++e) {
      const std::pair<int64_t, int64_t> edge{static_cast<int64_t>(row), subgraph.sources[e]};
      if (!std::ranges::binary_search(of_row, edge)) take(e);
    }
    begin = end;
    subgraph.offsets[row + 1] = static_cast<int64_t>(kept);
  }
  const int64_t removed = static_cast<int64_t>(begin) - kept;
  if (removed == 0) return;
  for (size_t e = begin; e < subgraph.sources.size(); ++e) take(e);
  // The places of the edges from last_neighbors come after the places of `sources`.
  const auto places = subgraph.edge_places.begin();
  if (placed) subgraph.edge_places.erase(places + kept, places + std::ssize(subgraph.sources));
  subgraph.sources.resize(static_cast<size_t>(kept));
  for (size_t row = seeds + 1; row < subgraph.offsets.size(); ++row) subgraph.offsets[row] -= removed;
}

}  // namespace permafrost::data
