// A graph made of another one, which it keeps alive: what it does not tell otherwise is the other's.
// Threads: as Graph.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "data/store/graph.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
