#include "nn/ops/pool.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <vector>

#include "nn/gpu/operators.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// The factor of each graph's sum, by type T.
template <class T>
std::vector<T> FactorsOf(const int64_t* graph_of_row, int64_t rows, int64_t graphs, bool mean) {
  std::vector<T> factors(static_cast<size_t>(graphs), mean ? T(0) : T(1));
  if (!mean) return factors;
  for (int64_t r = 0; r < rows; ++r) factors[static_cast<size_t>(graph_of_row[r])] += 1;
  for (T& factor : factors) factor = T(1) / std::max(T(1), factor);
  return factors;
}

Tensor PoolForwardCpu(const Tensor& x_in, const Tensor& graph_in, int64_t graphs, bool mean) {
  const Tensor x = x_in.contiguous(), graph = graph_in.contiguous();
  TORCH_CHECK(x.dim() == 2 && graph.dim() == 1 && graph.size(0) == x.size(0) && graph.scalar_type() == at::kLong,
              "pool: x ", x.sizes(), " and graph_of_row ", graph.toString(), graph.sizes(),
              " must be [N, C] and [N] int64");
  const int64_t rows = x.size(0), width = x.size(1);
  const int64_t* const of = graph.const_data_ptr<int64_t>();
  TORCH_CHECK(rows == 0 || (of[0] >= 0 && of[rows - 1] < graphs), "pool: graph_of_row is outside 0..", graphs - 1);
  Tensor y = at::zeros({graphs, width}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pool", [&] {
    const auto factors = FactorsOf<scalar_t>(of, rows, graphs, mean);
    const scalar_t* const from = x.const_data_ptr<scalar_t>();
    scalar_t* const to = y.mutable_data_ptr<scalar_t>();
    for (int64_t r = 0; r < rows; ++r) {
      const scalar_t* __restrict__ in = from + r * width;
      scalar_t* __restrict__ out = to + of[r] * width;
      for (int64_t c = 0; c < width; ++c) out[c] += in[c];
    }
    for (int64_t g = 0; mean && g < graphs; ++g) {
      const scalar_t factor = factors[static_cast<size_t>(g)];
      for (int64_t c = 0; c < width; ++c) to[g * width + c] *= factor;
    }
  });
  return y;
}

Tensor PoolBackwardCpu(const Tensor& grad_in, const Tensor& graph_in, bool mean) {
  const Tensor grad = grad_in.contiguous(), graph = graph_in.contiguous();
  const int64_t rows = graph.size(0), width = grad.size(1), graphs = grad.size(0);
  const int64_t* const of = graph.const_data_ptr<int64_t>();
  Tensor gx = at::empty({rows, width}, grad.options());
  AT_DISPATCH_FLOATING_TYPES(grad.scalar_type(), "pool_backward", [&] {
    const auto factors = FactorsOf<scalar_t>(of, rows, graphs, mean);
    const scalar_t* const from = grad.const_data_ptr<scalar_t>();
    scalar_t* const to = gx.mutable_data_ptr<scalar_t>();
    for (int64_t r = 0; r < rows; ++r) {
      const scalar_t factor = factors[static_cast<size_t>(of[r])];
      const scalar_t* __restrict__ in = from + of[r] * width;
      scalar_t* __restrict__ out = to + r * width;
      for (int64_t c = 0; c < width; ++c) out[c] = in[c] * factor;
    }
  });
  return gx;
}

constexpr Operator<PoolForwardCpu> kPoolForward{"pool(Tensor x, Tensor graph_of_row, int graphs, bool mean) -> Tensor"};
constexpr Operator<PoolBackwardCpu> kPoolBackward{
    "pool_backward(Tensor grad, Tensor graph_of_row, bool mean) -> Tensor"};

class PoolFunction : public torch::autograd::Function<PoolFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& graph, int64_t graphs,
                        bool mean) {
    context->save_for_backward({graph});
    context->saved_data["mean"] = mean;
    return kPoolForward(x, graph, graphs, mean);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {kPoolBackward(grads[0], context->get_saved_variables()[0], context->saved_data["mean"].toBool()), Tensor(),
            Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kPoolForward.Register(library, nullptr, gpu::PoolForward);
  kPoolBackward.Register(library, nullptr, gpu::PoolBackward);
}

Tensor PoolRows(const Tensor& x, const Tensor& graph_of_row, int64_t graphs, spec::Pooling pooling) {
  if (IsFused(x) || (HasKernels(x) && graphs <= gpu::kMostBlocks)) {
    return PoolFunction::apply(x, graph_of_row, graphs, pooling == spec::Pooling::kMean);
  }
  Tensor sums = AddRows(at::zeros({graphs, x.size(1)}, x.options()), graph_of_row, x);
  if (pooling == spec::Pooling::kSum) return sums;
  const Tensor ones = at::ones({x.size(0)}, x.options());
  return sums / AddRows(at::zeros({graphs}, x.options()), graph_of_row, ones).clamp_min(1).unsqueeze(1);
}

}  // namespace permafrost::nn
