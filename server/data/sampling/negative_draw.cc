#include "data/sampling/negative_draw.h"

#include <algorithm>
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

}  // namespace

NegativeDraw::NegativeDraw(std::shared_ptr<const Graph> graph, NegativeSampling sampling, uint64_t seed)
    : graph_(std::move(graph)), sampling_(sampling), seed_(seed) {}

absl::Status NegativeDraw::Draw(NodeId source, uint64_t key, std::span<NodeId> targets) const {
  SplitMix64 random(seed_, key);
  bool ok = true;
  const auto is_negative = [&](NodeId target) { return target != source && !HasEdge(view_, source, target, ok); };
  for (NodeId& target : targets) {
    bool found = false;
    for (int i = 0; i < kTries && !found && ok; ++i) {
      target = sampling_ == NegativeSampling::kDegree ? TargetOf(view_, ScaleBits(random.Next(), view_.edges), ok)
                                                      : static_cast<NodeId>(ScaleBits(random.Next(), view_.nodes));
      found = is_negative(target);
    }
    const NodeId last = target;
    for (uint64_t i = 1; i < view_.nodes && !found && ok; ++i) {
      target = static_cast<NodeId>((last + i) % view_.nodes);
      found = is_negative(target);
    }
    if (!found) target = last;
    if (!ok) break;
  }
  if (!ok) {
    PF_RETURN_IF_ERROR(view_.in.offsets.status());
    return view_.in.neighbors.status();
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
