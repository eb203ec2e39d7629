#include "data/store/statistics.h"

#include <algorithm>
#include <cmath>

namespace permafrost::data {
namespace {

// `graph_at(i)`: id of the i-th of `count` graphs. Two passes, since E[x^2] - E[x]^2 loses the digits of a small
// spread.
template <class GraphAt>
SizeStatistics Compute(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets, size_t count,
                       GraphAt graph_at) {
  SizeStatistics s;
  s.graphs = static_cast<int64_t>(count);
  if (count == 0) return s;
  const auto size_of = [](std::span<const uint64_t> offsets, size_t g) {
    return static_cast<int64_t>(offsets[g + 1] - offsets[g]);
  };
  for (size_t i = 0; i < count; ++i) {
    const int64_t nodes = size_of(node_offsets, graph_at(i)), edges = size_of(edge_offsets, graph_at(i));
    s.nodes += nodes;
    s.edges += edges;
    s.max_nodes = std::max(s.max_nodes, nodes);
    s.max_edges = std::max(s.max_edges, edges);
  }
  const auto n = static_cast<double>(count);
  s.mean_nodes = static_cast<double>(s.nodes) / n;
  s.mean_edges = static_cast<double>(s.edges) / n;
  double nn = 0, ee = 0, ne = 0;
  for (size_t i = 0; i < count; ++i) {
    const double dn = static_cast<double>(size_of(node_offsets, graph_at(i))) - s.mean_nodes;
    const double de = static_cast<double>(size_of(edge_offsets, graph_at(i))) - s.mean_edges;
    nn += dn * dn;
    ee += de * de;
    ne += dn * de;
  }
  s.std_nodes = std::sqrt(nn / n);
  s.std_edges = std::sqrt(ee / n);
  if (nn > 0 && ee > 0) s.node_edge_correlation = std::clamp(ne / (std::sqrt(nn) * std::sqrt(ee)), -1.0, 1.0);
  return s;
}

}  // namespace

SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets) {
  return Compute(node_offsets, edge_offsets, node_offsets.size() - 1, [](size_t i) { return i; });
}

SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets,
                                 std::span<const uint32_t> graphs) {
  return Compute(node_offsets, edge_offsets, graphs.size(), [graphs](size_t i) -> size_t { return graphs[i]; });
}

}  // namespace permafrost::data
