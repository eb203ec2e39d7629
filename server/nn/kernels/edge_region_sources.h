// Computes the gradient of the rows that a region gathers. A second region does this, and its targets are the
// gathered rows. The second region sums over the edges that read a row, so no gradient is stored for each edge.
// Threads: plain values, and functions that are safe anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nn/kernels/edge_region_plan.h"

namespace permafrost::nn {

// The source of a region's input. `place` is the number of the input or output that `kind` names.
struct RegionSource {
  enum class Kind : uint8_t {
    kInput,     // an input of the differentiated region
    kGradient,  // the gradient of an output of the differentiated region
    kTargets,   // an output of SourceGradient::targets
  };
  Kind kind = Kind::kInput;
  int32_t place = 0;
  bool operator==(const RegionSource&) const = default;
};

struct SourceGradient {
  // Runs first, over the targets of the differentiated region. If it has no outputs, it need not run.
  EdgeRegion targets;
  std::vector<RegionSource> target_inputs;
  // Runs over the rows of the input, with the edges that read each row. Its output is the gradient.
  EdgeRegion rows;
  std::vector<RegionSource> row_inputs;
  // For each index of `rows`, the position of this index in the differentiated region. -1: it is the target of each
  // edge.
  std::vector<int32_t> row_indices;
};

// Returns the regions that compute the gradient of input `input` from the gradients of the given outputs. kGather
// steps read this input. Returns nullopt if the gradient depends on a value that is reduced over a target's edges and
// then read by an edge step. Also returns nullopt if computing a function again would cost more than storing a row
// for each edge.
std::optional<SourceGradient> GradientBySource(const RegionPlan& plan, int32_t input,
                                               std::span<const char> given_outputs);

}  // namespace permafrost::nn
