// Plans and gathers batches of small graphs, in the padded form that every step takes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/step.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// Tells where the graphs of a set lie, and so how large a batch of them is: all that planning batches takes.
// Threads: all methods are safe anywhere. Keeps the set alive.
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

// One mini-batch on the host, in the padded form that every step takes.
// The padded form: real rows first, padding after. padded.nodes >= real.nodes + 1, padded.graphs >= real.graphs + 1,
// padded.edges >= real.edges. Padding edges run from the last node to itself; padding nodes belong to the last graph;
// padding labels are NaN, and padding features and positions 0.
struct PaddedBatch {
  BatchShape real;
  BatchShape padded;
  // int64, since index kernels take that. Row-major [rows, width]; the array of the other type is empty.
  AlignedVector<int64_t> node_ints;
  AlignedVector<float> node_floats;
  AlignedVector<int64_t> edge_ints;
  AlignedVector<float> edge_floats;
  AlignedVector<float> positions;        // [N, columns]; empty if the set has none, or nobody reads them
  AlignedVector<int64_t> edge_source;    // [E] node rows of this batch
  AlignedVector<int64_t> edge_target;    // [E] rising
  AlignedVector<int64_t> graph_of_node;  // [N] rising
  AlignedVector<float> labels;           // [G, targets], NaN where missing
  std::vector<uint32_t> graph_ids;       // [real.graphs] rows of the set
};

// Gathers graphs of one set into batches.
// Threads: Assemble is safe anywhere.
// Keeps the set alive.
class Batcher {
 public:
  // Touches (and so verifies) every section that batches are made of. `positions` tells whether they carry the set's.
  // Errors: DataLoss from the set.
  static absl::StatusOr<std::unique_ptr<Batcher>> Create(std::shared_ptr<const GraphSet> set, bool positions = true);

  const GraphExtents& extents() const { return extents_; }
  const GraphSetSummary& summary() const { return extents_.set().summary(); }
  std::span<const uint32_t> split(Split s) const { return extents_.split(s); }
  BatchShape ShapeOf(std::span<const uint32_t> graphs) const { return extents_.ShapeOf(graphs); }
  // Returns whether any label of the graph is there.
  bool HasLabel(uint32_t graph) const;
  // The least padded shape of `real`: one node and one graph more.
  static BatchShape LeastPadded(const BatchShape& real) { return {real.nodes + 1, real.edges, real.graphs + 1}; }
  // Fills `out`, reusing its memory. Errors: InvalidArgument if the graphs do not fit `padded`; DataLoss if the set's
  // file changed (GraphSet::CheckIntact).
  absl::Status Assemble(std::span<const uint32_t> graphs, const BatchShape& padded, PaddedBatch& out) const;
  // Makes an artificial batch of exactly this shape, least padding included. It repeats the rows of `graphs` until the
  // shape is full; each edge stays within a graph. Equal seeds give equal batches. Each graph gets a node if there are
  // enough, and labels come from labelled graphs if any are. Steps are recorded on such batches. Errors:
  // InvalidArgument if the shape has no room for one node and one graph, or if `graphs` have no nodes, or no edges
  // where the shape needs them; DataLoss as Assemble.
  absl::Status Compose(std::span<const uint32_t> graphs, const BatchShape& padded, uint64_t seed,
                       PaddedBatch& out) const;
  // Gives an assembled batch another padded shape: only padding rows are touched. InvalidArgument if it does not fit.
  absl::Status Pad(const BatchShape& padded, PaddedBatch& batch) const;

 private:
  explicit Batcher(GraphExtents extents) : extents_(std::move(extents)) {}

  const GraphExtents extents_;
  std::span<const uint32_t> edge_source_, edge_target_;
  FeatureTable node_features_, edge_features_, positions_;
  std::span<const float> labels_;
};

}  // namespace permafrost::data
