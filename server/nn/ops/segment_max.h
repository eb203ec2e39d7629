// The largest values over CSR segments, as a registered operator (so that a capture sees it).
// Threads: any; uses ATen's threads. Results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include "nn/ops/edge_index.h"

namespace permafrost::nn {

// out[r, c] = max over e in [offsets[r], offsets[r + 1]) of x[sources[e], c]; 0 where the segment is empty. Offsets and
// sources are as in segment_ops.h. x: [N, C] float32 or float64. transpose: of these rows and sources, or of more;
// undefined: made where it is needed. Returns [R, C]. Differentiable in x: entries that are equally large share the
// gradient, as in PyTorch's amax (and PyG's MaxAggregation, but for a largest value of 0, half of whose gradient it
// loses). On the CPU one operator; elsewhere, and of other lowerings,
// scatter_reduce of the gathered rows.
at::Tensor SegmentMax(const at::Tensor& x, const at::Tensor& offsets, const at::Tensor& sources,
                      const CsrTranspose& transpose = {});

}  // namespace permafrost::nn
