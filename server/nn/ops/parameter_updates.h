// Updates of a model's parameters, each an operator that a capture sees whole: Adam, AdamW and SGD over all of them
// (permafrost::adam_, permafrost::sgd_), and sparse Adam over few rows of a table (permafrost::sparse_adam_), whose
// gradient may be made dense (permafrost::dense_gradient).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace permafrost::nn {

// One update, in one parallel region for all parameters. CPU; float32 or float64, contiguous, all of one type.
// gradients, exp_avgs, exp_avg_sqs: one for each parameter, of its shape; step: [] float32, steps done, one more after
// this; learning_rate: [] float64; weight_decays: one for each parameter. decoupled: AdamW. beta = (0.9, 0.999), eps =
// 1e-8. applies: undefined, or [] float32: where it is 0 nothing is updated, and no step counted.
void AdamStepAll(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                 const std::vector<at::Tensor>& exp_avgs, const std::vector<at::Tensor>& exp_avg_sqs, at::Tensor& step,
                 const at::Tensor& learning_rate, at::ArrayRef<double> weight_decays, bool decoupled,
                 const at::Tensor& applies = {});

struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
};
// As above, for g = gradient + weight_decay * value: m = momentum * m + g, value -= learning_rate * m, or with nesterov
// learning_rate * (g + momentum * m). momenta: one for each parameter, 0 before the first step.
void SgdStepAll(const std::vector<at::Tensor>& parameters, const std::vector<at::Tensor>& gradients,
                const std::vector<at::Tensor>& momenta, at::Tensor& step, const at::Tensor& learning_rate,
                at::ArrayRef<double> weight_decays, const SgdOptions& options, const at::Tensor& applies = {});

// A gradient for few rows of a table. Row rows[m] has the sum of parts[places[p]] for p in [offsets[m], offsets[m +
// 1]); one thread makes each row once, in the order of its places. Other rows have no gradient.
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
