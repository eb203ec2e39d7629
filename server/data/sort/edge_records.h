// Edges as an import sorts them: a 64-bit key of two node rows, and what the edge carries. The narrower, the more fit
// into memory: the widest one that a graph needs is chosen once, and the sort is compiled for each.
// Threads: values.
#pragma once

#include <cstdint>

#include "data/store/graph.h"

namespace permafrost::data {

// The row that edges are gathered under above, the other end below: sorted keys are an adjacency.
using EdgeKey = uint64_t;
constexpr EdgeKey MakeEdgeKey(NodeId major, NodeId minor) { return EdgeKey{major} << 32 | minor; }
constexpr NodeId MajorOf(EdgeKey key) { return static_cast<NodeId>(key >> 32); }
constexpr NodeId MinorOf(EdgeKey key) { return static_cast<NodeId>(key); }
constexpr EdgeKey SwapEnds(EdgeKey key) { return key << 32 | key >> 32; }

struct PlainEdge {
  static constexpr bool kHasWeight = false, kHasAll = false;
  EdgeKey key = 0;
};
struct WeightedEdge {
  static constexpr bool kHasWeight = true, kHasAll = false;
  EdgeKey key = 0;
  float weight = 0;
  uint32_t order = 0;  // set by the sorter, within what it sorts at once
};
// All that an edge can carry.
struct FullEdge {
  static constexpr bool kHasWeight = true, kHasAll = true;
  EdgeKey key = 0;
  uint64_t row = 0;  // of the source, rising: the order of equal keys
  int64_t timestamp = 0;
  float weight = 0;
};

// By key, then by the order in which the edges came. Equal plain edges cannot be told apart, and need no order.
inline bool Before(const PlainEdge& a, const PlainEdge& b) { return a.key < b.key; }
inline bool Before(const WeightedEdge& a, const WeightedEdge& b) {
  return a.key != b.key ? a.key < b.key : a.order < b.order;
}
inline bool Before(const FullEdge& a, const FullEdge& b) { return a.key != b.key ? a.key < b.key : a.row < b.row; }

}  // namespace permafrost::data
