// Fused message passing: runs an edge region (nn/kernels/edge_region.h) as one operator, with its gradient.
// Registers permafrost::segments_of, edge_region and edge_region_backward, and row_region for regions without edges,
// for the CPU only. Calls of edge_region and row_region through the dispatcher are differentiable. Results do not
// depend on the number of threads. Threads: any; kernels use ATen's threads.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "nn/kernels/edge_region.h"

namespace permafrost::nn {

// Returns whether a device runs the operators below: the CPU does.
bool RunsEdgeRegions(c10::Device device);

// Edges by the row that each belongs to.
struct EdgeSegments {
  at::Tensor offsets;  // [rows + 1] int32: places offsets[r] .. offsets[r + 1] are row r's
  at::Tensor places;   // [E] int32: edges, rising within a row
};

// index: [E] int64 in [0, rows). Errors: IndexError that names the value. permafrost::segments_of.
EdgeSegments SegmentsOf(const at::Tensor& index, int64_t rows);

// The edges of a call.
struct RegionEdges {
  EdgeSegments targets;  // of the target index
  // [E] int64 each: the rows that kGather reads.
  std::vector<at::Tensor> indices;
  // SegmentsOf each index and the rows of its tables; undefined: made where the gradient needs them.
  std::vector<EdgeSegments> index_segments;
};

// inputs: all float32 or all float64. kTarget: [targets, ...]; kEdge: [E, ...]; kGather: [rows, ...]; kShared: one row
// of any shape. Sizes after the rows multiply to the step's width. Returns [targets, width] or [E, width] for each
// output. Differentiable once in the inputs. Errors: c10::Error for a region, a shape or an index that does not fit.
std::vector<at::Tensor> RunEdgeRegion(const EdgeRegion& region, const std::vector<at::Tensor>& inputs,
                                      const RegionEdges& edges);

// Computes the same with PyTorch's operators, on any device. target_index: [E] int64.
std::vector<at::Tensor> EdgeRegionPlain(const EdgeRegion& region, const std::vector<at::Tensor>& inputs,
                                        const at::Tensor& target_index, int64_t targets,
                                        const std::vector<at::Tensor>& indices);

}  // namespace permafrost::nn
