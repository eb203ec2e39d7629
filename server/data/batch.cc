#include "data/batch.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

std::string ToString(const BatchShape& s) {
  return absl::StrCat("(", s.nodes, " nodes, ", s.edges, " edges, ", s.graphs, " graphs)");
}

// Copies rows first..last of a [rows, width] table to row `at` of `out`, converting as it goes.
template <class From, class To>
void CopyRows(std::span<const From> table, int64_t width, uint64_t first, uint64_t last, int64_t at,
              std::vector<To>& out) {
  const auto begin = table.begin() + static_cast<std::ptrdiff_t>(first) * width;
  const auto end = table.begin() + static_cast<std::ptrdiff_t>(last) * width;
  std::copy(begin, end, out.begin() + at * width);
}

void CopyFeatures(const FeatureTable& table, uint64_t first, uint64_t last, int64_t at, std::vector<int64_t>& ints,
                  std::vector<float>& floats) {
  if (table.type == DataType::kInt32) CopyRows(table.ints, table.width, first, last, at, ints);
  if (table.type == DataType::kFloat32) CopyRows(table.floats, table.width, first, last, at, floats);
}

// Room for `rows`, those from `real` on zero.
void ResizeFeatures(const FeatureTable& table, int64_t real, int64_t rows, std::vector<int64_t>& ints,
                    std::vector<float>& floats) {
  const auto resize = [&](auto& out, DataType type) {
    out.resize(table.type == type ? static_cast<size_t>(rows * table.width) : 0);
    if (!out.empty()) std::fill(out.begin() + real * table.width, out.end(), 0);
  };
  resize(ints, DataType::kInt32);
  resize(floats, DataType::kFloat32);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Batcher>> Batcher::Create(std::shared_ptr<const GraphSet> set) {
  std::unique_ptr<Batcher> batcher(new Batcher(std::move(set)));
  const GraphSet& s = *batcher->set_;
  PF_ASSIGN_OR_RETURN(batcher->node_offsets_, s.node_offsets());
  PF_ASSIGN_OR_RETURN(batcher->edge_offsets_, s.edge_offsets());
  PF_ASSIGN_OR_RETURN(batcher->edge_source_, s.edge_source());
  PF_ASSIGN_OR_RETURN(batcher->edge_target_, s.edge_target());
  PF_ASSIGN_OR_RETURN(batcher->node_features_, s.node_features());
  PF_ASSIGN_OR_RETURN(batcher->edge_features_, s.edge_features());
  PF_ASSIGN_OR_RETURN(batcher->labels_, s.labels());
  for (const auto& [split, name] : kSplitNames.rows) {
    PF_ASSIGN_OR_RETURN(batcher->splits_[static_cast<size_t>(split)], s.split(split));
  }
  return batcher;
}

BatchShape Batcher::ShapeOf(std::span<const uint32_t> graphs) const {
  BatchShape shape;
  shape.graphs = static_cast<int64_t>(graphs.size());
  for (const uint32_t g : graphs) {
    shape.nodes += static_cast<int64_t>(node_offsets_[g + size_t{1}] - node_offsets_[g]);
    shape.edges += static_cast<int64_t>(edge_offsets_[g + size_t{1}] - edge_offsets_[g]);
  }
  return shape;
}

absl::Status Batcher::Assemble(std::span<const uint32_t> graphs, const BatchShape& padded, PaddedBatch& out) const {
  for (const uint32_t g : graphs) {
    if (g + size_t{1} >= node_offsets_.size()) {
      return absl::InvalidArgumentError(absl::StrCat("graph id ", g, " is not below ", node_offsets_.size() - 1));
    }
  }
  const BatchShape real = ShapeOf(graphs), least = LeastPadded(real);
  if (padded.nodes < least.nodes || padded.edges < least.edges || padded.graphs < least.graphs) {
    return absl::InvalidArgumentError(
        absl::StrCat("padded shape ", ToString(padded), " does not hold ", ToString(least)));
  }
  out.real = real;
  out.padded = padded;
  out.graph_ids.assign(graphs.begin(), graphs.end());
  ResizeFeatures(node_features_, real.nodes, padded.nodes, out.node_ints, out.node_floats);
  ResizeFeatures(edge_features_, real.edges, padded.edges, out.edge_ints, out.edge_floats);
  out.edge_source.resize(static_cast<size_t>(padded.edges));
  out.edge_target.resize(static_cast<size_t>(padded.edges));
  out.graph_of_node.resize(static_cast<size_t>(padded.nodes));
  const int64_t targets = summary().num_targets;
  out.labels.resize(static_cast<size_t>(padded.graphs * targets));

  int64_t node = 0, edge = 0, row = 0;
  for (const uint32_t g : graphs) {
    const uint64_t first_node = node_offsets_[g], last_node = node_offsets_[g + size_t{1}];
    const uint64_t first_edge = edge_offsets_[g], last_edge = edge_offsets_[g + size_t{1}];
    CopyFeatures(node_features_, first_node, last_node, node, out.node_ints, out.node_floats);
    CopyFeatures(edge_features_, first_edge, last_edge, edge, out.edge_ints, out.edge_floats);
    CopyRows(labels_, targets, g, g + uint64_t{1}, row, out.labels);
    for (uint64_t e = first_edge; e < last_edge; ++e, ++edge) {
      out.edge_source[static_cast<size_t>(edge)] = node + edge_source_[e];
      out.edge_target[static_cast<size_t>(edge)] = node + edge_target_[e];
    }
    const auto nodes = static_cast<int64_t>(last_node - first_node);
    std::fill_n(out.graph_of_node.begin() + node, nodes, row);
    node += nodes;
    ++row;
  }
  std::fill(out.edge_source.begin() + edge, out.edge_source.end(), padded.nodes - 1);
  std::fill(out.edge_target.begin() + edge, out.edge_target.end(), padded.nodes - 1);
  std::fill(out.graph_of_node.begin() + node, out.graph_of_node.end(), padded.graphs - 1);
  std::fill(out.labels.begin() + row * targets, out.labels.end(), std::numeric_limits<float>::quiet_NaN());
  return absl::OkStatus();
}

}  // namespace permafrost::data
