#include "data/sampling/exclude_edges.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace permafrost::data {

namespace {

// For a disjoint subgraph, in which a seed stands in other seeds' parts too.
void ExcludeNodes(const SeedPairs& pairs, SampledSubgraph& subgraph) {
  std::vector<std::pair<NodeId, NodeId>> gone;  // (target, source)
  gone.reserve(2 * pairs.sources.size());
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    const NodeId source = subgraph.nodes[static_cast<size_t>(pairs.sources[i])];
    const NodeId target = subgraph.nodes[static_cast<size_t>(pairs.targets[i])];
    gone.emplace_back(target, source);
    gone.emplace_back(source, target);
  }
  std::ranges::sort(gone);
  const bool placed = !subgraph.edge_places.empty();
  const size_t inner = subgraph.sources.size();
  size_t kept = 0, kept_inner = 0, begin = 0;
  for (size_t row = 0; row + 1 < subgraph.offsets.size(); ++row) {
    const auto end = static_cast<size_t>(subgraph.offsets[row + 1]);
    for (size_t e = begin; e < end; ++e) {
      const NodeId source =
          e < inner ? subgraph.nodes[static_cast<size_t>(subgraph.sources[e])] : subgraph.last_neighbors[e - inner];
      if (std::ranges::binary_search(gone, std::pair(subgraph.nodes[row], source))) continue;
      if (placed) subgraph.edge_places[kept] = subgraph.edge_places[e];
      if (e < inner) {
        subgraph.sources[kept_inner++] = subgraph.sources[e];
      } else {
        subgraph.last_neighbors[kept - kept_inner] = source;
      }
      ++kept;
    }
    begin = end;
    subgraph.offsets[row + 1] = static_cast<int64_t>(kept);
  }
  subgraph.sources.resize(kept_inner);
  subgraph.last_neighbors.resize(kept - kept_inner);
  if (placed) subgraph.edge_places.resize(kept);
}

}  // namespace

void ExcludeEdges(const SeedPairs& pairs, SampledSubgraph& subgraph) {
  if (!subgraph.owners.empty()) return ExcludeNodes(pairs, subgraph);
  std::vector<std::pair<int64_t, int64_t>> edges;  // (target, source)
  for (size_t i = 0; i < pairs.sources.size(); ++i) {
    edges.emplace_back(pairs.targets[i], pairs.sources[i]);
    edges.emplace_back(pairs.sources[i], pairs.targets[i]);
  }
  std::ranges::sort(edges);
  const bool placed = !subgraph.edge_places.empty();
  ptrdiff_t kept = 0;
  size_t next = 0;
  const auto take = [&](size_t e) {
    const auto to = static_cast<size_t>(kept);
    subgraph.sources[to] = subgraph.sources[e];
    if (placed) subgraph.edge_places[to] = subgraph.edge_places[e];
    ++kept;
  };
  // Only the rows of seeds have such edges. Offsets are written over as they are read.
  const auto seeds = static_cast<size_t>(subgraph.row_ends.front());
  size_t begin = 0;
  for (size_t row = 0; row < seeds; ++row) {
    const auto end = static_cast<size_t>(subgraph.offsets[row + 1]);
    const size_t first = next;
    while (next < edges.size() && edges[next].first == static_cast<int64_t>(row)) ++next;
    const auto of_row = std::span(edges).subspan(first, next - first);
    for (size_t e = begin; e < end; ++e) {
      const std::pair<int64_t, int64_t> edge{static_cast<int64_t>(row), subgraph.sources[e]};
      if (!std::ranges::binary_search(of_row, edge)) take(e);
    }
    begin = end;
    subgraph.offsets[row + 1] = static_cast<int64_t>(kept);
  }
  const int64_t removed = static_cast<int64_t>(begin) - kept;
  if (removed == 0) return;
  for (size_t e = begin; e < subgraph.sources.size(); ++e) take(e);
  // Places of a last hop apart stand behind.
  const auto places = subgraph.edge_places.begin();
  if (placed) subgraph.edge_places.erase(places + kept, places + std::ssize(subgraph.sources));
  subgraph.sources.resize(static_cast<size_t>(kept));
  for (size_t row = seeds + 1; row < subgraph.offsets.size(); ++row) subgraph.offsets[row] -= removed;
}

}  // namespace permafrost::data
