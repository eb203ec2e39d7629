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

// Knows where each graph of a set lies, and computes from it the size of any batch of graphs. Planning batches needs
// nothing else. Threads: all methods are safe anywhere. Keeps the set alive.
class GraphExtents {
 public:
  // A graph's rows in the set. Empty if the file changed, so that the offsets differ from the offsets that were
  // verified.
  struct Extent {
    uint64_t first_node = 0, last_node = 0, first_edge = 0, last_edge = 0;
  };

  // Touches (and so verifies) the offsets and splits of the set, and nothing else. Errors: DataLoss from the set.
  static absl::StatusOr<GraphExtents> Create(std::shared_ptr<const GraphSet> set);

  const GraphSet& set() const { return *set_; }
  std::span<const uint32_t> split(Split s) const { return splits_[static_cast<size_t>(s)]; }
  size_t graphs() const { return node_offsets_.size() - 1; }
  bool Has(uint32_t graph) const { return graph < graphs(); }
  Extent Of(uint32_t graph) const;
  // Returns the shape of a batch of these graphs (ids of the set), without padding.
  BatchShape ShapeOf(std::span<const uint32_t> graphs) const;

 private:
  explicit GraphExtents(std::shared_ptr<const GraphSet> set) : set_(std::move(set)) {}

  std::shared_ptr<const GraphSet> set_;
  std::span<const uint64_t> node_offsets_, edge_offsets_;
  uint64_t nodes_ = 0, edges_ = 0;  // sizes of the whole set
  std::array<std::span<const uint32_t>, 3> splits_;
};

// One mini-batch on the host, in the padded form that every step takes.
// In the padded form real rows come first, and padding rows follow. padded.nodes >= real.nodes + 1, padded.graphs >=
// real.graphs + 1, and padded.edges >= real.edges. Padding edges run from the last node to itself. Padding nodes
// belong to the last graph. Padding labels are NaN, and padding features and positions are 0.
struct PaddedBatch {
  BatchShape real;
  BatchShape padded;
  // Features of nodes and of edges, each row-major [rows, width]. Integers are in the `ints` array, as int64 for
  // index kernels, and floats are in the `floats` array. The other array is empty.
  AlignedVector<int64_t> node_ints;
  AlignedVector<float> node_floats;
  AlignedVector<int64_t> edge_ints;
  AlignedVector<float> edge_floats;
  AlignedVector<float> positions;        // [N, columns]; empty if the set or the batcher has no positions
  AlignedVector<int64_t> edge_source;    // [E] rows of nodes in this batch
  AlignedVector<int64_t> edge_target;    // [E] rising
  AlignedVector<int64_t> graph_of_node;  // [N] rising
  AlignedVector<float> labels;           // [G, targets], NaN where missing
  std::vector<uint32_t> graph_ids;       // [real.graphs] ids of the graphs in the set
  // The keys of dropout's masks: [N] and [G]. Empty unless the batcher makes keys. A row's key is its own position in
  // the batch, or in the batch of all ranks (Batcher::SetKeys). Padding has the key 0.
  AlignedVector<int64_t> node_keys, graph_keys;
};

// Gathers graphs of one set into batches. Keeps the set alive.
// Threads: const methods are safe anywhere, for different batches.
class Batcher {
 public:
  struct Options {
    bool positions = true;  // whether batches carry positions
    bool keys = false;      // whether batches carry keys
  };
  // Touches (and so verifies) every section that batches are made of. Errors: DataLoss from the set.
  static absl::StatusOr<std::unique_ptr<Batcher>> Create(std::shared_ptr<const GraphSet> set, const Options& options);
  static absl::StatusOr<std::unique_ptr<Batcher>> Create(std::shared_ptr<const GraphSet> set) {
    return Create(std::move(set), Options());
  }

  const GraphExtents& extents() const { return extents_; }
  const GraphSetSummary& summary() const { return extents_.set().summary(); }
  std::span<const uint32_t> split(Split s) const { return extents_.split(s); }
  BatchShape ShapeOf(std::span<const uint32_t> graphs) const { return extents_.ShapeOf(graphs); }
  // Returns whether the graph has any label.
  bool HasLabel(uint32_t graph) const;
  // Returns the smallest padded shape that holds `real`: one node and one graph more than `real`.
  static BatchShape LeastPadded(const BatchShape& real) { return {real.nodes + 1, real.edges, real.graphs + 1}; }
  // Fills `out` with a batch of these graphs, reusing its memory. Errors: InvalidArgument if the graphs do not fit
  // into `padded`; DataLoss if the set's file changed (GraphSet::CheckIntact).
  absl::Status Assemble(std::span<const uint32_t> graphs, const BatchShape& padded, PaddedBatch& out) const;
  // Makes an artificial batch, on which a step is recorded. Its padded shape is `padded`, with the least padding. It
  // repeats rows of `graphs` until the shape is full. Each edge stays within a graph. Each graph gets a node if there
  // are enough nodes. Labels are repeated from graphs with labels, if there are any. Equal seeds give equal batches.
  // Errors: InvalidArgument if the shape has no room for one node and one graph, if `graphs` have no nodes, or if
  // they have no edges but the batch needs edge features; DataLoss, as Assemble.
  absl::Status Compose(std::span<const uint32_t> graphs, const BatchShape& padded, uint64_t seed,
                       PaddedBatch& out) const;
  // Changes the padded shape of an assembled batch. Only padding rows change. Errors: InvalidArgument if the batch
  // does not fit.
  absl::Status Pad(const BatchShape& padded, PaddedBatch& batch) const;
  // Sets the keys of an assembled batch, which is one rank's share of `whole`. places[i] is the place in `whole` of
  // the batch's graph i.
  void SetKeys(std::span<const uint32_t> whole, std::span<const uint32_t> places, PaddedBatch& batch) const;

 private:
  Batcher(GraphExtents extents, const Options& options) : extents_(std::move(extents)), options_(options) {}
  // Sets each real row's key to the row's own position.
  void SetOwnKeys(PaddedBatch& batch) const;

  const GraphExtents extents_;
  const Options options_;
  std::span<const uint32_t> edge_source_, edge_target_;
  FeatureTable node_features_, edge_features_, positions_;
  std::span<const float> labels_;
};

}  // namespace permafrost::data
