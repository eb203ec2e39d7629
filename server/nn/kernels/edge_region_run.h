// Runs a region, or its gradient, tile by tile. A tile is a range of targets with all of their edges. Intermediate
// values stay in the cache, unless one target has too many edges.
// Threads: any, each with targets of its own. Results do not depend on how targets are divided among calls, with one
// exception: a sum over all targets covers only the targets of its call. Each thread keeps up to 32 MiB of tile
// memory between calls.
#pragma once

#include <cstdint>
#include <span>

#include "nn/kernels/edge_region_plan.h"

namespace permafrost::nn {

// The arrays of a call. The edges of target t are places[offsets[t]] .. places[offsets[t + 1] - 1]. The caller has
// checked that offsets, places and indices are in range. If HasNoEdges(region), offsets and places may be null; then
// no target has edges.
template <class T>
struct RegionInputs {
  std::span<const T* const> inputs;         // gaps between rows: only if RegionPlan::may_lie_apart
  std::span<const int64_t> strides;         // for each input, values from one row to the next
  std::span<const int64_t* const> indices;  // [edges] each
  const int32_t *offsets, *places;
};

// Writes the rows of targets [begin, end) and of their edges, for each output.
template <class T>
void RunRegion(const RegionPlan& plan, const RegionInputs<T>& in, int64_t begin, int64_t end,
               std::span<T* const> outputs);

template <class T>
struct RegionGradients {
  std::span<const T* const> outputs;  // gradients of the outputs; null: not given
  // For each input, the memory for its gradient; null: the gradient is not wanted. The shape depends on the steps
  // that read the input.
  //   kTarget, kEdge: rows as in the input.
  //   kShared: [width], the sum over this call's targets.
  //   kGather: if the input's entry in `tables` is 0, a row for each edge, at the edge's place. Otherwise [rows,
  //     width], the sum over this call's edges.
  std::span<T* const> inputs;
  std::span<const int64_t> tables;  // for each input, rows of the table to sum into; 0: a row for each edge
};
template <class T>
void RunRegionGradient(const RegionPlan& plan, const RegionGradientPlan& gradient, const RegionInputs<T>& in,
                       int64_t begin, int64_t end, const RegionGradients<T>& to);

}  // namespace permafrost::nn
