// Sums and means of a batch's rows by graph, as one operator with its gradient: permafrost::pool.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "spec/model.h"

namespace permafrost::nn {

// y[g] = the sum, or the mean, of x's rows of graph g; 0 where it has none.
// x: [N, C] float32 or float64; graph_of_row: [N] int64 in [0, graphs), rising. Returns [graphs, C]. Differentiable in
// x. Rows are summed in their order. On devices other than the CPU it is made of index_add.
at::Tensor PoolRows(const at::Tensor& x, const at::Tensor& graph_of_row, int64_t graphs, spec::Pooling pooling);

}  // namespace permafrost::nn
