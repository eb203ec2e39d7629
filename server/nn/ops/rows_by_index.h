// Operators on rows that an index selects, with their gradients: sums over categorical columns, sums by graph, and
// products of pairs. A capture sees these operators.
// Threads: any; kernels use ATen's threads. Results do not depend on the number of threads.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "spec/model.h"

namespace permafrost::nn {

// y[n] = the sum over columns c of tables[c][features[n, c]].
// features: [N, columns] int64; tables: [categories of c, C] float32 or float64. Returns [N, C]. Differentiable in
// the tables. Each gradient is summed in the order of rows, for any number of threads. permafrost::embedding_sum; on
// a device without a kernel it is made of index_select.
at::Tensor EmbeddingSum(const at::Tensor& features, const std::vector<at::Tensor>& tables);

// Returns the row of the table for each index, [..., C]. table: [rows, C] float32 or float64; indices: int64 in [0,
// rows), of any shape, on the CPU. Differentiable in the table: its gradient is summed in the order of the indices.
// Errors: IndexError that names the index. permafrost::row_embedding.
at::Tensor RowEmbedding(const at::Tensor& table, const at::Tensor& indices);

// Returns [N] int32: for each row, the code of its combination of categories. features: [N, columns] int64 with
// values below categories[c]. The last column varies fastest. The product of `categories` is below 2^31.
// permafrost::combine_categories.
at::Tensor CombineCategories(const at::Tensor& features, const std::vector<int64_t>& categories);
// Returns [product of the tables' rows, C]: row `code` is the sum of one row from each table. These are the rows of
// the categories that the code combines. Differentiable in the tables.
at::Tensor CombineTables(const std::vector<at::Tensor>& tables);

// y[g] = the sum, or the mean, of the rows of x that belong to graph g; 0 if there are none.
// x: [N, C] float32 or float64; graph_of_row: [N] int64 in [0, graphs), rising. Returns [graphs, C]. Differentiable
// in x. Rows are summed in their order. permafrost::pool; on a device without a kernel it is made of index_add.
at::Tensor PoolRows(const at::Tensor& x, const at::Tensor& graph_of_row, int64_t graphs, spec::Pooling pooling);

// out[p] = x[first[p]] * x[second[p]], which link decoders score. x: [N, C] float32 or float64; first, second: [P]
// int64, below N. Returns [P, C]. Differentiable in x. On the CPU it is one operator. On other devices and in other
// lowerings it is two selections and a product.
at::Tensor PairProducts(const at::Tensor& x, const at::Tensor& first, const at::Tensor& second);

}  // namespace permafrost::nn
