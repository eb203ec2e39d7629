// The shape of one mini-batch: what an executable is compiled for.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace permafrost {

// (N nodes, E directed edges, G graphs).
struct BatchShape {
  int64_t nodes = 0;
  int64_t edges = 0;
  int64_t graphs = 0;
  auto operator<=>(const BatchShape&) const = default;
  // Returns whether a batch of `other` fits, padded up to this.
  bool Holds(const BatchShape& other) const {
    return nodes >= other.nodes && edges >= other.edges && graphs >= other.graphs;
  }
};

// The things that `graphs` of shapes count: graphs of a set, or seed nodes of one large graph.
inline constexpr std::string_view kCountedGraphs = "graphs", kCountedSeeds = "seeds";
// "(757 nodes, 1630 edges, 33 graphs)"
std::string ToString(const BatchShape& shape, std::string_view counted = kCountedGraphs);

}  // namespace permafrost
