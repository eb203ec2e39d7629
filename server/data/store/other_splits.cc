#include "data/store/other_splits.h"

#include <span>
#include <utility>

#include "base/status.h"
#include "data/store/derived_graph.h"
#include "data/store/derived_set.h"
#include "data/store/statistics.h"

namespace permafrost::data {
namespace {

class SetWithSplits final : public DerivedSet {
 public:
  SetWithSplits(std::shared_ptr<const GraphSet> set, OtherSplits splits, GraphSetSummary summary, uint64_t checksum)
      : DerivedSet(std::move(set), std::move(summary), checksum), splits_(std::move(splits.rows)) {
    summary_.split_name = std::move(splits.name);
  }

  // The summary's splits are those of the set until this.
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

}  // namespace permafrost::data
