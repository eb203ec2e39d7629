// A gradient of few rows of a table: what those rows gather, and what is made of it: permafrost::dense_gradient and
// permafrost::sparse_adam_.
#pragma once

#include <ATen/core/Tensor.h>

namespace permafrost::nn {

// The gradient of row rows[m] of a table is the sum of parts[places[p]] for p in [offsets[m], offsets[m + 1]): each row
// is made once, by one thread, in the order of its places. Other rows have none.
struct RowGradient {
  at::Tensor rows;     // [M] int64, distinct; padding, whose ranges are empty, repeats one of them
  at::Tensor offsets;  // [M + 1] int64
  at::Tensor places;   // [P] int64; beyond the last offset any
  at::Tensor parts;    // [P, D], as the table
  at::Tensor nodes;    // [P] int64: the row that each part is of; a part that is in no row's range is 0
};

// [rows of the table, D]
at::Tensor DenseGradient(const RowGradient& gradient, int64_t table_rows);

// One update of the rows that have a gradient, as torch.optim.SparseAdam: the moments of others stay as they are, and
// all share one count of steps. beta = (0.9, 0.999), eps = 1e-8. table, exp_avg, exp_avg_sq: [N, D], changed; step: []
// float32, one more after this; learning_rate: [].
void SparseAdamStep(const at::Tensor& table, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
                    const at::Tensor& step, const at::Tensor& learning_rate, const RowGradient& gradient);

}  // namespace permafrost::nn
