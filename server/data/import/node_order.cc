#include "data/import/node_order.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "base/status.h"

namespace permafrost::data {
namespace {

constexpr int kMostPasses = 5;
constexpr uint32_t kCommunitySizes[] = {4096, 64};

std::vector<NodeId> Rows(size_t nodes) {
  std::vector<NodeId> rows(nodes);
  std::iota(rows.begin(), rows.end(), NodeId{0});
  return rows;
}

// One level: labels within the communities of the level above.
class LabelPropagation {
 public:
  // above: a label for each node, or none: all are in one community.
  LabelPropagation(const std::vector<NodeId>& above, size_t nodes, uint32_t most)
      : above_(above), most_(most), labels_(Rows(nodes)), sizes_(nodes, 1) {}

  absl::StatusOr<std::vector<NodeId>> Run(const EdgeLists& edges) && {
    for (int pass = 0; pass < kMostPasses; ++pass) {
      moved_ = 0;
      PF_RETURN_IF_ERROR(edges([this](NodeId node, std::span<const NodeId> sources) { Visit(node, sources); }));
      constexpr uint64_t kFewMoved = 100;
      if (moved_ * kFewMoved < labels_.size()) break;
    }
    return std::move(labels_);
  }

 private:
  void Visit(NodeId node, std::span<const NodeId> sources) {
    found_.clear();
    for (const NodeId source : sources.first(std::min(sources.size(), kMostAsked))) {
      if (source != node && (above_.empty() || above_[source] == above_[node])) found_.push_back(labels_[source]);
    }
    std::sort(found_.begin(), found_.end());
    const NodeId own = labels_[node];
    NodeId best = own;
    size_t best_count =
        static_cast<size_t>(std::ranges::upper_bound(found_, own) - std::ranges::lower_bound(found_, own));
    for (size_t begin = 0, end = 0; begin < found_.size(); begin = end) {
      const NodeId label = found_[begin];
      while (end < found_.size() && found_[end] == label) ++end;
      if (end - begin > best_count && sizes_[label] < most_) {
        best = label;
        best_count = end - begin;
      }
    }
    if (best == own) return;
    --sizes_[own];
    ++sizes_[best];
    labels_[node] = best;
    ++moved_;
  }

  const std::vector<NodeId>& above_;
  const uint32_t most_;
  std::vector<NodeId> labels_;
  std::vector<uint32_t> sizes_;
  std::vector<NodeId> found_;
  uint64_t moved_ = 0;
};

}  // namespace

std::vector<NodeId> OrderByDegree(const OutDegrees& degrees) {
  std::vector<NodeId> order = Rows(degrees.size());
  std::ranges::sort(order,
                    [&](NodeId a, NodeId b) { return degrees[a] != degrees[b] ? degrees[a] > degrees[b] : a < b; });
  return order;
}

absl::StatusOr<std::vector<NodeId>> OrderByCommunity(const OutDegrees& degrees, const EdgeLists& edges) {
  const std::vector<NodeId> none;
  PF_ASSIGN_OR_RETURN(const std::vector<NodeId> large,
                      LabelPropagation(none, degrees.size(), kCommunitySizes[0]).Run(edges));
  PF_ASSIGN_OR_RETURN(const std::vector<NodeId> small,
                      LabelPropagation(large, degrees.size(), kCommunitySizes[1]).Run(edges));
  std::vector<NodeId> order = Rows(degrees.size());
  std::ranges::sort(
      order, {}, [&](NodeId node) { return std::tuple(large[node], small[node], UINT32_MAX - degrees[node], node); });
  return order;
}

}  // namespace permafrost::data
