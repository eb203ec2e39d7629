#include "data/store/featured_set.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "data/store/derived_set.h"

namespace permafrost::data {
namespace {

class FeaturedSet final : public DerivedSet {
 public:
  FeaturedSet(std::shared_ptr<const GraphSet> set, MadeFeatures features, GraphSetSummary summary, uint64_t checksum)
      : DerivedSet(std::move(set), std::move(summary), checksum), features_(features) {}

  absl::Status Make() {
    const auto nodes = static_cast<size_t>(summary_.all.nodes);
    if (features_ == MadeFeatures::kConstant) {
      ones_.assign(nodes, 1.0F);
      return absl::OkStatus();
    }
    PF_ASSIGN_OR_RETURN(const auto first_nodes, node_offsets());
    PF_ASSIGN_OR_RETURN(const auto first_edges, edge_offsets());
    PF_ASSIGN_OR_RETURN(const auto targets, edge_target());
    degrees_.resize(nodes);
    // Until CheckIntact() the columns may be anything.
    for (size_t graph = 0; graph + 1 < first_nodes.size(); ++graph) {
      const size_t first = first_nodes[graph];
      const size_t end = std::min<size_t>(first_edges[graph + 1], targets.size());
      for (size_t edge = first_edges[graph]; edge < end; ++edge) {
        const size_t node = first + targets[edge];
        if (node < nodes) degrees_[node] = std::min(degrees_[node] + 1, static_cast<int32_t>(kDegreeCap));
      }
    }
    return CheckIntact();
  }

  absl::StatusOr<FeatureTable> node_features() const override {
    return FeatureTable{.type = summary_.node_features.type, .width = 1, .ints = degrees_, .floats = ones_};
  }

 private:
  const MadeFeatures features_;
  std::vector<int32_t> degrees_;
  std::vector<float> ones_;
};

}  // namespace

GraphSetSummary SummaryWith(MadeFeatures features, GraphSetSummary summary) {
  const bool constant = features == MadeFeatures::kConstant;
  FeatureSummary made;
  made.type = constant ? DataType::kFloat32 : DataType::kInt32;
  made.width = 1;
  made.min = {constant ? 1.0 : 0.0};
  made.max = {constant ? 1.0 : static_cast<double>(kDegreeCap)};
  summary.node_features = std::move(made);
  summary.node_feature_origin = constant ? "constant" : "degree";
  return summary;
}

absl::StatusOr<std::shared_ptr<const GraphSet>> WithFeatures(std::shared_ptr<const GraphSet> set,
                                                             MadeFeatures features) {
  const uint64_t identity[] = {set->checksum(), static_cast<uint64_t>(features)};
  GraphSetSummary summary = SummaryWith(features, set->summary());
  auto featured =
      std::make_shared<FeaturedSet>(std::move(set), features, std::move(summary), Hash64(identity, sizeof(identity)));
  PF_RETURN_IF_ERROR(featured->Make());
  return featured;
}

}  // namespace permafrost::data
