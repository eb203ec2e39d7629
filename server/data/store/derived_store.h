
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// A graph made of another one, which it keeps alive: what it does not tell otherwise is the other's.
// Threads: as Graph.
class DerivedGraph : public Graph {
 public:
  const GraphSummary& summary() const override { return summary_; }
  const GraphView& view() const override { return view_; }
  const NodeNames& names() const override { return graph_->names(); }
  uint64_t names_checksum() const override { return graph_->names_checksum(); }
  absl::Status CheckIntact() const override { return graph_->CheckIntact(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const override {
    return graph_->VerifyAll(progress);
  }
  uint64_t mapped_bytes() const override { return graph_->mapped_bytes(); }
  absl::StatusOr<std::optional<Categories>> categories() const override { return graph_->categories(); }
  std::optional<StoredRows> stored_features() const override { return graph_->stored_features(); }

 protected:
  // Summary and view begin as the other's; the summary as `summary`, where it is given.
  explicit DerivedGraph(const std::shared_ptr<const Graph>& graph) : DerivedGraph(graph, graph->summary()) {}
  DerivedGraph(std::shared_ptr<const Graph> graph, GraphSummary summary)
      : graph_(std::move(graph)), summary_(std::move(summary)), view_(graph_->view()) {}

  const std::shared_ptr<const Graph> graph_;
  GraphSummary summary_;
  GraphView view_;
};

// A set of graphs made of another one, which it keeps alive: what it does not tell otherwise is the other's.
// Threads: as GraphSet.
class DerivedSet : public GraphSet {
 public:
  const GraphSetSummary& summary() const override { return summary_; }
  uint64_t checksum() const override { return checksum_; }
  absl::StatusOr<std::span<const uint64_t>> node_offsets() const override { return set_->node_offsets(); }
  absl::StatusOr<std::span<const uint64_t>> edge_offsets() const override { return set_->edge_offsets(); }
  absl::StatusOr<std::span<const uint32_t>> edge_source() const override { return set_->edge_source(); }
  absl::StatusOr<std::span<const uint32_t>> edge_target() const override { return set_->edge_target(); }
  absl::StatusOr<FeatureTable> node_features() const override { return set_->node_features(); }
  absl::StatusOr<FeatureTable> edge_features() const override { return set_->edge_features(); }
  absl::StatusOr<std::span<const float>> labels() const override { return set_->labels(); }
  absl::StatusOr<std::optional<Categories>> categories() const override { return set_->categories(); }
  absl::StatusOr<std::span<const uint32_t>> split(Split split) const override { return set_->split(split); }
  absl::Status CheckIntact() const override { return set_->CheckIntact(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const override {
    return set_->VerifyAll(progress);
  }
  uint64_t mapped_bytes() const override { return set_->mapped_bytes(); }

 protected:
  // `checksum`: of this set, another than the other's.
  DerivedSet(std::shared_ptr<const GraphSet> set, GraphSetSummary summary, uint64_t checksum)
      : set_(std::move(set)), summary_(std::move(summary)), checksum_(checksum) {}

  const std::shared_ptr<const GraphSet> set_;
  GraphSetSummary summary_;
  const uint64_t checksum_;
};

}  // namespace permafrost::data
