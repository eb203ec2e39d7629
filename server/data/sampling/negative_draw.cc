#include "data/sampling/negative_draw.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "data/sampling/draw.h"
#include "data/store/link_split.h"

namespace permafrost::data {
namespace {

// The node that edge `place` of the in-edges ends in.
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

// Nodes whose edges are read between two questions whether to go on.
constexpr uint64_t kNodesAsked = 1 << 16;

// The sources of the edges that end in a node; nullopt where they cannot be read.
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
    // Parallel edges stand side by side.
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

}  // namespace permafrost::data
