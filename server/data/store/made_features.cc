#include "data/store/made_features.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/status.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {
namespace {

class FeaturedGraph final : public DerivedGraph {
 public:
  FeaturedGraph(const std::shared_ptr<const Graph>& graph, MadeFeatures features)
      : DerivedGraph(graph, SummaryWith(features, graph->summary())) {}

  absl::Status Make(MadeFeatures features) {
    const uint64_t nodes = view_.nodes;
    if (features == MadeFeatures::kConstant) {
      ones_.assign(nodes, 1.0F);
      DenseFeatures dense{.type = DataType::kFloat32, .width = 1, .bytes = {}, .groups = {}, .scales = {}};
      dense.bytes = Column<std::byte>(std::as_bytes(std::span<const float>(ones_)));
      view_.node_features = dense;
      return absl::OkStatus();
    }
    offsets_.resize(nodes + 1);
    std::iota(offsets_.begin(), offsets_.end(), uint64_t{0});
    columns_.resize(nodes);
    if (features == MadeFeatures::kOwnColumn) {
      std::iota(columns_.begin(), columns_.end(), uint32_t{0});
    } else {
      const Column<uint64_t>& in = view_.in.offsets;
      if (!in.Touch(0, nodes + 1)) return in.status();
      const auto last = static_cast<uint64_t>(summary_.node_features.width - 1);
      for (uint64_t v = 0; v < nodes; ++v) {
        columns_[v] = static_cast<uint32_t>(std::min(in[v + 1] - std::min(in[v], in[v + 1]), last));
      }
      PF_RETURN_IF_ERROR(graph_->CheckIntact());
    }
    view_.node_features = SparseFeatures{.width = summary_.node_features.width,
                                         .offsets = Column<uint64_t>(offsets_),
                                         .columns = Column<uint32_t>(columns_),
                                         .values = {}};
    return absl::OkStatus();
  }

  // They are in no file.
  std::optional<StoredRows> stored_features() const override { return std::nullopt; }

 private:
  std::vector<float> ones_;
  std::vector<uint64_t> offsets_;
  std::vector<uint32_t> columns_;
};

}  // namespace

GraphSummary SummaryWith(MadeFeatures features, GraphSummary summary) {
  FeatureSummary made;
  const bool dense = features == MadeFeatures::kConstant;
  made.type = dense ? DataType::kFloat32 : DataType::kSparse;
  made.width = features == MadeFeatures::kOwnColumn   ? summary.nodes
               : dense                                ? 1
               : features == MadeFeatures::kOwnDegree ? std::min(summary.max_degree, kDegreeCap) + 1
                                                      : kDegreeCap + 1;
  summary.node_features = std::move(made);
  summary.node_feature_nonzeros = dense ? 0 : summary.nodes;
  return summary;
}

absl::StatusOr<std::shared_ptr<const Graph>> WithFeatures(const std::shared_ptr<const Graph>& graph,
                                                          MadeFeatures features) {
  auto featured = std::make_shared<FeaturedGraph>(graph, features);
  PF_RETURN_IF_ERROR(featured->Make(features));
  return featured;
}

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
