#include "data/batching/batch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/random.h"
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
  // Checks the id too, since it may come from the file, which may have changed.
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

namespace {

// Copies rows [first, last) of a [rows, width] table to row `at` of `out`, converting them to To.
template <class From, class To>
void CopyRows(std::span<const From> table, int64_t width, uint64_t first, uint64_t last, int64_t at,
              AlignedVector<To>& out) {
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(first) * width;
  const auto end = table.begin() + static_cast<std::ptrdiff_t>(last) * width;
  std::copy(begin, end, out.begin() + at * width);
}

void CopyFeatures(const FeatureTable& table, uint64_t first, uint64_t last, int64_t at, AlignedVector<int64_t>& ints,
                  AlignedVector<float>& floats) {
  if (table.type == DataType::kInt32) CopyRows(table.ints, table.width, first, last, at, ints);
  if (table.type == DataType::kFloat32) CopyRows(table.floats, table.width, first, last, at, floats);
}

// Resizes the features to `rows` rows, and sets all rows from row `real` on to zero.
void ResizeFeatures(const FeatureTable& table, int64_t real, int64_t rows, AlignedVector<int64_t>& ints,
                    AlignedVector<float>& floats) {
  const auto resize = [&](auto& out, DataType type) {
    out.resize(table.type == type ? static_cast<size_t>(rows * table.width) : 0);
    if (!out.empty()) std::fill(out.begin() + real * table.width, out.end(), 0);
  };
  resize(ints, DataType::kInt32);
  resize(floats, DataType::kFloat32);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Batcher>> Batcher::Create(std::shared_ptr<const GraphSet> set, const Options& options) {
  PF_ASSIGN_OR_RETURN(GraphExtents extents, GraphExtents::Create(std::move(set)));
  std::unique_ptr<Batcher> batcher(new Batcher(std::move(extents), options));
  const GraphSet& s = batcher->extents_.set();
  PF_ASSIGN_OR_RETURN(batcher->edge_source_, s.edge_source());
  PF_ASSIGN_OR_RETURN(batcher->edge_target_, s.edge_target());
  PF_ASSIGN_OR_RETURN(batcher->node_features_, s.node_features());
  PF_ASSIGN_OR_RETURN(batcher->edge_features_, s.edge_features());
  if (options.positions) {
    PF_ASSIGN_OR_RETURN(batcher->positions_, s.positions());
  }
  PF_ASSIGN_OR_RETURN(batcher->labels_, s.labels());
  return batcher;
}

bool Batcher::HasLabel(uint32_t graph) const {
  if (!extents_.Has(graph) || labels_.empty()) return false;
  const auto targets = static_cast<size_t>(summary().num_targets);
  return std::ranges::any_of(labels_.subspan(graph * targets, targets), [](float l) { return !std::isnan(l); });
}

absl::Status Batcher::Assemble(std::span<const uint32_t> graphs, const BatchShape& padded, PaddedBatch& out) const {
  for (const uint32_t g : graphs) {
    if (!extents_.Has(g)) {
      PF_RETURN_IF_ERROR(extents_.set().CheckIntact());
      return absl::InvalidArgumentError(absl::StrCat("graph id ", g, " is not below ", extents_.graphs()));
    }
  }
  out.real = ShapeOf(graphs);
  out.graph_ids.assign(graphs.begin(), graphs.end());
  // If the batch does not fit because the file changed, reports the change and not an invalid argument.
  if (!padded.Holds(LeastPadded(out.real))) PF_RETURN_IF_ERROR(extents_.set().CheckIntact());
  PF_RETURN_IF_ERROR(Pad(padded, out));

  const int64_t targets = summary().num_targets;
  int64_t node = 0, edge = 0, row = 0;
  for (const uint32_t g : graphs) {
    const GraphExtents::Extent at = extents_.Of(g);
    const auto nodes = static_cast<int64_t>(at.last_node - at.first_node);
    const auto edges = static_cast<int64_t>(at.last_edge - at.first_edge);
    // Leaves the loop if the file's offsets changed after the shape was computed, so that nothing is written beyond
    // the shape.
    if (node + nodes > out.real.nodes || edge + edges > out.real.edges) break;
    CopyFeatures(node_features_, at.first_node, at.last_node, node, out.node_ints, out.node_floats);
    CopyRows(positions_.floats, positions_.width, at.first_node, at.last_node, node, out.positions);
    CopyFeatures(edge_features_, at.first_edge, at.last_edge, edge, out.edge_ints, out.edge_floats);
    if (labels_.empty()) {
      std::fill_n(out.labels.begin() + row * targets, targets, std::numeric_limits<float>::quiet_NaN());
    } else {
      CopyRows(labels_, targets, g, g + uint64_t{1}, row, out.labels);
    }
    for (uint64_t e = at.first_edge; e < at.last_edge; ++e, ++edge) {
      out.edge_source[static_cast<size_t>(edge)] = node + edge_source_[e];
      out.edge_target[static_cast<size_t>(edge)] = node + edge_target_[e];
    }
    std::fill_n(out.graph_of_node.begin() + node, nodes, row);
    node += nodes;
    ++row;
  }
  SetOwnKeys(out);
  return extents_.set().CheckIntact();
}

void Batcher::SetOwnKeys(PaddedBatch& batch) const {
  if (!options_.keys) return;
  std::iota(batch.node_keys.begin(), batch.node_keys.begin() + batch.real.nodes, int64_t{0});
  std::iota(batch.graph_keys.begin(), batch.graph_keys.begin() + batch.real.graphs, int64_t{0});
}

void Batcher::SetKeys(std::span<const uint32_t> whole, std::span<const uint32_t> places, PaddedBatch& batch) const {
  std::vector<int64_t> first_nodes;  // of each graph in the whole batch
  first_nodes.reserve(whole.size());
  const auto nodes_of = [&](uint32_t graph) {
    const GraphExtents::Extent extent = extents_.Of(graph);
    return static_cast<int64_t>(extent.last_node - extent.first_node);
  };
  int64_t node = 0;
  for (const uint32_t graph : whole) {
    first_nodes.push_back(node);
    node += nodes_of(graph);
  }
  auto key = batch.node_keys.begin();
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t nodes = nodes_of(whole[places[i]]);
    // The offsets changed after the batch was assembled.
    if (batch.node_keys.end() - key < nodes) return;
    std::iota(key, key + nodes, first_nodes[places[i]]);
    key += nodes;
    batch.graph_keys[i] = places[i];
  }
}

namespace {

// Iterates over the rows of some graphs, graph by graph, and begins again after the last one.
class RowCycle {
 public:
  using Extent = GraphExtents::Extent;
  RowCycle(const GraphExtents& extents, std::span<const uint32_t> graphs, uint64_t Extent::*first,
           uint64_t Extent::*last, size_t begin)
      : extents_(extents), graphs_(graphs), first_(first), last_(last), at_(begin % graphs.size()) {
    const auto has_rows = [&](uint32_t graph) { return extents.Of(graph).*first < extents.Of(graph).*last; };
    any_ = std::ranges::any_of(graphs, has_rows);
  }
  bool any() const { return any_; }
  // Returns the next row. any() must be true.
  uint64_t Next() {
    while (true) {
      const Extent extent = extents_.Of(graphs_[at_]);
      const uint64_t row = extent.*first_ + done_;
      if (row < extent.*last_) {
        ++done_;
        return row;
      }
      done_ = 0;
      at_ = (at_ + 1) % graphs_.size();
    }
  }

 private:
  const GraphExtents& extents_;
  std::span<const uint32_t> graphs_;
  uint64_t Extent::*first_;
  uint64_t Extent::*last_;
  size_t at_;
  uint64_t done_ = 0;  // rows of the current graph returned so far
  bool any_ = false;
};

}  // namespace

absl::Status Batcher::Compose(std::span<const uint32_t> graphs, const BatchShape& padded, uint64_t seed,
                              PaddedBatch& out) const {
  out.real = {padded.nodes - 1, padded.edges, padded.graphs - 1};
  out.graph_ids.clear();
  const BatchShape& real = out.real;
  if (graphs.empty() || real.nodes < 1 || real.graphs < 1) {
    return absl::InvalidArgumentError(absl::StrCat(graphs.size(), " graphs fill no batch of ", ToString(padded)));
  }
  SplitMix64 random(seed, /*stream=*/0);
  const size_t begin = random.Below(graphs.size());
  using Extent = GraphExtents::Extent;
  RowCycle nodes(extents_, graphs, &Extent::first_node, &Extent::last_node, begin);
  RowCycle edges(extents_, graphs, &Extent::first_edge, &Extent::last_edge, begin);
  const bool reads_edges = edge_features_.type != DataType::kNone && real.edges > 0;
  if (!nodes.any() || (reads_edges && !edges.any())) {
    return absl::InvalidArgumentError("the graphs have no rows to fill a batch with");
  }
  PF_RETURN_IF_ERROR(Pad(padded, out));
  for (int64_t node = 0; node < real.nodes; ++node) {
    const uint64_t row = nodes.Next();
    CopyFeatures(node_features_, row, row + 1, node, out.node_ints, out.node_floats);
    CopyRows(positions_.floats, positions_.width, row, row + 1, node, out.positions);
    out.graph_of_node[static_cast<size_t>(node)] = node * real.graphs / real.nodes;
  }
  for (int64_t edge = 0; edge < real.edges; ++edge) {
    const int64_t target = edge * real.nodes / real.edges, graph = out.graph_of_node[static_cast<size_t>(target)];
    // Node n belongs to graph number n * graphs / nodes, rounded down, so this graph has nodes [first, end).
    const int64_t first = (graph * real.nodes + real.graphs - 1) / real.graphs;
    const int64_t end = ((graph + 1) * real.nodes + real.graphs - 1) / real.graphs;
    const auto others = static_cast<uint64_t>(end - first - 1);
    const int64_t step = others == 0 ? 0 : 1 + static_cast<int64_t>(random.Below(others));
    out.edge_source[static_cast<size_t>(edge)] = first + (target - first + step) % (end - first);
    out.edge_target[static_cast<size_t>(edge)] = target;
    if (!reads_edges) continue;
    const uint64_t row = edges.Next();
    CopyFeatures(edge_features_, row, row + 1, edge, out.edge_ints, out.edge_floats);
  }
  const int64_t targets = summary().num_targets;
  const auto labelled = [&](uint32_t graph) { return HasLabel(graph); };
  const bool any_label = std::ranges::any_of(graphs, labelled);
  size_t at = begin;
  for (int64_t row = 0; row < real.graphs && any_label; ++row) {
    while (!HasLabel(graphs[at % graphs.size()])) ++at;
    const uint32_t graph = graphs[at++ % graphs.size()];
    CopyRows(labels_, targets, graph, graph + uint64_t{1}, row, out.labels);
  }
  if (!any_label) std::ranges::fill(out.labels, std::numeric_limits<float>::quiet_NaN());
  SetOwnKeys(out);
  return extents_.set().CheckIntact();
}

absl::Status Batcher::Pad(const BatchShape& padded, PaddedBatch& batch) const {
  const BatchShape& real = batch.real;
  if (const BatchShape least = LeastPadded(real); !padded.Holds(least)) {
    return absl::InvalidArgumentError(
        absl::StrCat("padded shape ", ToString(padded), " does not hold ", ToString(least)));
  }
  batch.padded = padded;
  ResizeFeatures(node_features_, real.nodes, padded.nodes, batch.node_ints, batch.node_floats);
  ResizeFeatures(edge_features_, real.edges, padded.edges, batch.edge_ints, batch.edge_floats);
  const auto fill = [](auto& rows, int64_t first, int64_t count, auto value) {
    rows.resize(static_cast<size_t>(count));
    std::fill(rows.begin() + first, rows.end(), value);
  };
  const int64_t targets = summary().num_targets;
  fill(batch.positions, real.nodes * positions_.width, padded.nodes * positions_.width, 0.0F);
  fill(batch.edge_source, real.edges, padded.edges, padded.nodes - 1);
  fill(batch.edge_target, real.edges, padded.edges, padded.nodes - 1);
  fill(batch.graph_of_node, real.nodes, padded.nodes, padded.graphs - 1);
  fill(batch.labels, real.graphs * targets, padded.graphs * targets, std::numeric_limits<float>::quiet_NaN());
  if (options_.keys) {
    fill(batch.node_keys, real.nodes, padded.nodes, int64_t{0});
    fill(batch.graph_keys, real.graphs, padded.graphs, int64_t{0});
  }
  return absl::OkStatus();
}

}  // namespace permafrost::data
