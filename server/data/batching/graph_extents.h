// Tells where the graphs of a set lie, and so how large a batch of them is: all that planning batches takes.
// Threads: all methods are safe anywhere. Keeps the set alive.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/batch_shape.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

class GraphExtents {
 public:
  // A graph's rows in the set. Empty, where the offsets are none that were verified: their file changed.
  struct Extent {
    uint64_t first_node = 0, last_node = 0, first_edge = 0, last_edge = 0;
  };

  // Touches (and so verifies) offsets and splits, nothing else. Errors: DataLoss from the set.
  static absl::StatusOr<GraphExtents> Create(std::shared_ptr<const GraphSet> set);

  const GraphSet& set() const { return *set_; }
  std::span<const uint32_t> split(Split s) const { return splits_[static_cast<size_t>(s)]; }
  size_t graphs() const { return node_offsets_.size() - 1; }
  bool Has(uint32_t graph) const { return graph < graphs(); }
  Extent Of(uint32_t graph) const;
  // Shape of a batch of these graphs (ids of the set), padding apart.
  BatchShape ShapeOf(std::span<const uint32_t> graphs) const;

 private:
  explicit GraphExtents(std::shared_ptr<const GraphSet> set) : set_(std::move(set)) {}

  std::shared_ptr<const GraphSet> set_;
  std::span<const uint64_t> node_offsets_, edge_offsets_;
  uint64_t nodes_ = 0, edges_ = 0;  // of the set
  std::array<std::span<const uint32_t>, 3> splits_;
};

}  // namespace permafrost::data
