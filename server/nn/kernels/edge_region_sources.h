// The gradient for rows that a region gathers, as a region of its own whose targets are those rows. It sums over the
// edges that read a row, so that no gradient for each edge is stored between the two.
// Threads: plain values, and functions that are safe anywhere.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "nn/kernels/edge_region_plan.h"

namespace permafrost::nn {

// Where an input of a region comes from.
struct RegionSource {
  enum class Kind : uint8_t {
    kInput,     // an input of the region that is differentiated
    kGradient,  // the gradient of one of its outputs
    kTargets,   // an output of SourceGradient::targets
  };
  Kind kind = Kind::kInput;
  int32_t place = 0;
  bool operator==(const RegionSource&) const = default;
};

struct SourceGradient {
  // Runs first, over the targets of the differentiated region. No outputs: it need not run.
  EdgeRegion targets;
  std::vector<RegionSource> target_inputs;
  // Runs over the rows that the input has, with the edges that read each row. Its output is the gradient.
  EdgeRegion rows;
  std::vector<RegionSource> row_inputs;
  // For each index of `rows`: the index of the differentiated region, or -1 for the target of each edge.
  std::vector<int32_t> row_indices;
};

// Returns the gradient for input `input`, which kGather steps read, from the gradients of the given outputs. Returns
// nullopt if it depends on a value that is reduced over a target's edges and that an edge reads, or on a function that
// costs more to compute again than a row for each edge costs to store.
std::optional<SourceGradient> GradientBySource(const RegionPlan& plan, int32_t input,
                                               std::span<const char> given_outputs);

}  // namespace permafrost::nn
