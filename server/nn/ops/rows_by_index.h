// Rows that an index names, as operators with their gradients: summed over categorical columns, summed by graph, and
// multiplied in pairs. A capture sees them.
// Threads: any; kernels use ATen's threads. Results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "spec/model.h"

namespace permafrost::nn {

// y[n] = the sum over columns c of tables[c][features[n, c]].
// features: [N, columns] int64; tables: [categories of c, C] float32 or float64. Returns [N, C]. Differentiable in the
// tables: the gradient of each is summed in the order of rows, whatever the number of threads.
// permafrost::embedding_sum; on devices other than the CPU it is made of index_select.
at::Tensor EmbeddingSum(const at::Tensor& features, const std::vector<at::Tensor>& tables);

// One code for each combination of categories: [N] int32, of features [N, columns] int64 with values below
// categories[c]; the last column counts fastest. Their product is below 2^31. permafrost::combine_categories.
at::Tensor CombineCategories(const at::Tensor& features, const std::vector<int64_t>& categories);
// [product of the tables' rows, C]: the sum of the tables' rows for each code. Differentiable in the tables.
at::Tensor CombineTables(const std::vector<at::Tensor>& tables);

// y[g] = the sum, or the mean, of x's rows of graph g; 0 where it has none.
// x: [N, C] float32 or float64; graph_of_row: [N] int64 in [0, graphs), rising. Returns [graphs, C]. Differentiable in
// x. Rows are summed in their order. permafrost::pool; on devices other than the CPU it is made of index_add.
at::Tensor PoolRows(const at::Tensor& x, const at::Tensor& graph_of_row, int64_t graphs, spec::Pooling pooling);

// out[p] = x[first[p]] * x[second[p]], which decoders of links score. x: [N, C] float32 or float64; first, second: [P]
// int64, below N. Returns [P, C]. Differentiable in x. On the CPU one operator; elsewhere, and of other lowerings, two
// selections and a product.
at::Tensor PairProducts(const at::Tensor& x, const at::Tensor& first, const at::Tensor& second);

}  // namespace permafrost::nn
