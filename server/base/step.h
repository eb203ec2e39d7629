// The kind of a step, and the shape of its mini-batch. An executable is compiled for one kind and shape.
// Threads: values and pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/enum_names.h"
#include "base/string_view.h"

namespace permafrost {

// A training step runs forward, backward and the optimizer. An evaluation step runs only forward, without dropout,
// and its batch norms use running statistics.
enum class Mode { kTrain, kEval };
inline constexpr EnumNames<Mode, 2> kModeNames{{{{Mode::kTrain, "train"}, {Mode::kEval, "eval"}}}};

// N nodes, E directed edges and G graphs.
struct BatchShape {
  int64_t nodes = 0;
  int64_t edges = 0;
  int64_t graphs = 0;
  auto operator<=>(const BatchShape&) const = default;
  // Returns whether a batch of shape `other` can be padded to this shape.
  bool Holds(const BatchShape& other) const {
    return nodes >= other.nodes && edges >= other.edges && graphs >= other.graphs;
  }
};

// Words for BatchShape::graphs, which counts the graphs of a set, or the seed nodes of one large graph.
inline constexpr std::string_view kCountedGraphs = "graphs", kCountedSeeds = "seeds";
// Returns, for example, "(757 nodes, 1630 edges, 33 graphs)".
inline std::string ToString(const BatchShape& shape, std::string_view counted = kCountedGraphs) {
  return absl::StrCat("(", shape.nodes, " nodes, ", shape.edges, " edges, ", shape.graphs, " ", AbslView(counted), ")");
}

}  // namespace permafrost
