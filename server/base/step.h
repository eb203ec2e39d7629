// A step has a kind and the shape of its mini-batch, which an executable is compiled for.
// Threads: values and pure functions.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/enum_names.h"

namespace permafrost {

// The two kinds of step.

// Training: forward, backward, optimizer. Evaluation: forward only, without dropout and with running statistics.
enum class Mode { kTrain, kEval };
inline constexpr EnumNames<Mode, 2> kModeNames{{{{Mode::kTrain, "train"}, {Mode::kEval, "eval"}}}};

// The shape of one mini-batch: what an executable is compiled for.

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
