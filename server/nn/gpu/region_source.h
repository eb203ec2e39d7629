// Writes the forward pass of an edge region (nn/kernels/edge_region.h) as one kernel of CUDA C++, which a device
// compiles at run time. The text needs no headers. The kernel uses no atomic additions, so equal inputs give equal
// bits. Up to rounding, the kernel's outputs equal those of RunEdgeRegion (nn/ops/edge_region.h). NaN and infinite
// outputs are equal too.
// Threads: a pure function, safe anywhere.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nn/kernels/edge_region.h"

namespace permafrost::nn::gpu {

// A kernel, and the numbers that its launch needs. The kernel's parameters, where T is the type of all values:
//   const T* input0, ...            one for each input, row by row; a row has the width of the step that reads it
//   const long long* index0, ...    one for each index: [E], the rows that kGather reads; not checked
//   const int* offsets, *places     EdgeSegments of the target index: [targets + 1] and [E]
//   long long targets
//   T* target_values, *edge_values  scratch memory of any contents: [targets, target_columns], [E, edge_columns]
//   T* output0, ...                 one for each output, all written: [targets, width] or [E, width]
// Arrays that the kernel writes must not overlap any other array. Launch one block of `threads` threads for each
// target, in one dimension.
struct RegionKernel {
  std::string source;
  unsigned threads = 0;
  int64_t target_columns = 0, edge_columns = 0;
};

// The largest total number of inputs, indices and outputs of a kernel. Every version of CUDA accepts 4,096 bytes of
// kernel parameters.
inline constexpr int64_t kMostRegionPointers = 500;

// T: float or double. region: one that DecodeRegion accepts. name: a C identifier, which names the kernel.
// Errors: InvalidArgument for a region with too many inputs, indices and outputs.
template <class T>
absl::StatusOr<RegionKernel> ForwardKernelOf(const EdgeRegion& region, std::string_view name);

}  // namespace permafrost::nn::gpu
