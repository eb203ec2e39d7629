// Encoders of categorical columns, as operators with their gradients.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

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

}  // namespace permafrost::nn
