// Runs a region, or its gradient, tile by tile. A tile is a run of targets with all of their edges. Values between
// inputs and outputs stay in the cache, unless one target has too many edges.
// Threads: any, each with targets of its own. Results do not depend on how targets are shared out, but for sums over
// all targets, which are those of a call. Each thread keeps up to 32 MiB of tile memory between calls.
#pragma once

#include <cstdint>
#include <span>

#include "nn/kernels/edge_region_plan.h"

namespace permafrost::nn {

// Checked by the caller: targets' edges are places[offsets[t]] .. places[offsets[t + 1] - 1]; indices are in range.
// offsets and places may be null if HasNoEdges(region): no target has edges then.
template <class T>
struct RegionInputs {
  std::span<const T* const> inputs;         // RegionPlan::may_lie_apart tells which may have gaps between rows
  std::span<const int64_t> strides;         // values from one row of an input to the next
  std::span<const int64_t* const> indices;  // [edges] each
  const int32_t *offsets, *places;
};

// Writes the rows of targets [begin, end), and those of their edges, of each output.
template <class T>
void RunRegion(const RegionPlan& plan, const RegionInputs<T>& in, int64_t begin, int64_t end,
               std::span<T* const> outputs);

template <class T>
struct RegionGradients {
  std::span<const T* const> outputs;  // those given; null: none
  // Each input's gradient is written here; null: it is not wanted. kTarget and kEdge: rows like the input's. kShared:
  // [width], this call's share. kGather: a row for each edge, at the edge's place; where `tables` says so, [rows,
  // width], this call's share.
  std::span<T* const> inputs;
  std::span<const int64_t> tables;  // rows of such a table; 0: a row for each edge
};
template <class T>
void RunRegionGradient(const RegionPlan& plan, const RegionGradientPlan& gradient, const RegionInputs<T>& in,
                       int64_t begin, int64_t end, const RegionGradients<T>& to);

}  // namespace permafrost::nn
