// Fused message passing: runs an edge region (nn/kernels/edge_region.h) as one operator, with its gradient.
// Registers, for the CPU only, permafrost::segments_of, edge_region, edge_region_backward, and row_region for regions
// without edges. Calls of edge_region and row_region through the dispatcher are differentiable. Results do not depend
// on the number of threads.
// Threads: any; kernels use ATen's threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "nn/kernels/edge_region.h"

namespace permafrost::nn {

// Returns whether a device runs the operators below. Only the CPU does.
bool RunsEdgeRegions(c10::Device device);

// Edges grouped by the row to which each belongs.
struct EdgeSegments {
  at::Tensor offsets;  // [rows + 1] int32: row r has places [offsets[r], offsets[r + 1])
  at::Tensor places;   // [E] int32: edge numbers, rising within each row
};

// Groups edges by their row. index: [E] int64 in [0, rows). Errors: IndexError that names the value.
// permafrost::segments_of.
EdgeSegments SegmentsOf(const at::Tensor& index, int64_t rows);

// The edges that a call works on.
struct RegionEdges {
  EdgeSegments targets;  // SegmentsOf the target index
  // For each index, [E] int64: the rows that kGather reads.
  std::vector<at::Tensor> indices;
  // For each index, SegmentsOf(index, rows of the tables that it reads). If they are undefined, the gradient makes
  // them when it needs them.
  std::vector<EdgeSegments> index_segments;
};

// inputs: all float32 or all float64. Shapes: kTarget [targets, ...]; kEdge [E, ...]; kGather [rows, ...]; kShared
// one row of any shape. The product of the sizes after the first is the step's width. Returns [targets, width] or [E,
// width] for each output. Differentiable once in the inputs. Errors: c10::Error for a region, a shape or an index
// that does not fit.
std::vector<at::Tensor> RunEdgeRegion(const EdgeRegion& region, const std::vector<at::Tensor>& inputs,
                                      const RegionEdges& edges);

// Computes the result of RunEdgeRegion by PyTorch's operators, on any device. target_index: [E] int64.
std::vector<at::Tensor> EdgeRegionPlain(const EdgeRegion& region, const std::vector<at::Tensor>& inputs,
                                        const at::Tensor& target_index, int64_t targets,
                                        const std::vector<at::Tensor>& indices);

}  // namespace permafrost::nn
