// Orders of nodes that put together what is drawn together.
// Threads: pure, but for what `edges` does. Memory: kOrderBytesPerNode for each node, and the neighbours of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/graph.h"

namespace permafrost::data {

inline constexpr uint64_t kOrderBytesPerNode = 16;
// So many of a node's first in-neighbours are asked, so that a hub takes no more memory than they do.
inline constexpr size_t kMostAsked = size_t{1} << 16;

// Edges that begin in each node, up to 2^32 - 1: how often it stands among other nodes' in-neighbours, and so is drawn.
using OutDegrees = std::vector<uint32_t>;

// By falling degree, ties by row. Returns the rows in their new order.
std::vector<NodeId> OrderByDegree(const OutDegrees& degrees);

// Gives visit(node, sources) for each node that edges end in, rising; `sources` rise and may stand twice; those after
// the first kMostAsked may be left out. Called again for each pass.
using EdgeLists =
    std::function<absl::Status(const std::function<void(NodeId node, std::span<const NodeId> sources)>& visit)>;

// Communities of at most 4,096 nodes, in each of them communities of at most 64, in these by falling degree, ties by
// row. A community stands where the row is that its members took their label from. Each level: label propagation, in
// which a node takes the label that most of its in-neighbours have among those that have room, its own where that is
// as good, else the least; at most five passes over all edges, fewer once less than a hundredth of the nodes moved.
// Deterministic. Sources: Raghavan, Albert and Kumara 2007 (label propagation); Meyerhenke, Sanders and Schulz 2014,
// "Partitioning complex networks via size-constrained clustering"; Boldi, Rosa, Santini and Vigna 2011, "Layered label
// propagation" (one order out of several sizes of clusters). Errors: those of `edges`.
absl::StatusOr<std::vector<NodeId>> OrderByCommunity(const OutDegrees& degrees, const EdgeLists& edges);

}  // namespace permafrost::data
