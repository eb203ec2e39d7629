#include "data/batching/graph_extents.h"

#include "base/status.h"

namespace permafrost::data {

absl::StatusOr<GraphExtents> GraphExtents::Create(std::shared_ptr<const GraphSet> set) {
  GraphExtents extents(std::move(set));
  PF_ASSIGN_OR_RETURN(extents.node_offsets_, extents.set_->node_offsets());
  PF_ASSIGN_OR_RETURN(extents.edge_offsets_, extents.set_->edge_offsets());
  for (const auto& [split, name] : kSplitNames.rows) {
    PF_ASSIGN_OR_RETURN(extents.splits_[static_cast<size_t>(split)], extents.set_->split(split));
  }
  extents.nodes_ = extents.node_offsets_.back();
  extents.edges_ = extents.edge_offsets_.back();
  return extents;
}

GraphExtents::Extent GraphExtents::Of(uint32_t graph) const {
  // Ids, too, may come from the file.
  if (!Has(graph)) return {};
  const Extent e{node_offsets_[graph], node_offsets_[graph + size_t{1}], edge_offsets_[graph],
                 edge_offsets_[graph + size_t{1}]};
  const bool verified =
      e.first_node <= e.last_node && e.last_node <= nodes_ && e.first_edge <= e.last_edge && e.last_edge <= edges_;
  return verified ? e : Extent{};
}

BatchShape GraphExtents::ShapeOf(std::span<const uint32_t> graphs) const {
  BatchShape shape;
  shape.graphs = static_cast<int64_t>(graphs.size());
  for (const uint32_t g : graphs) {
    const Extent e = Of(g);
    shape.nodes += static_cast<int64_t>(e.last_node - e.first_node);
    shape.edges += static_cast<int64_t>(e.last_edge - e.first_edge);
  }
  return shape;
}

}  // namespace permafrost::data
