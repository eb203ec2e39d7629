#include "nn/ops/pair_products.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>

#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"
#include "nn/ops/parallel.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Values that a thread should have at least.
constexpr int64_t kPairGrain = 1 << 15;
// Columns that threads share a gradient by: a cache line of float32.
constexpr int64_t kColumnsTogether = 16;

void CheckPairs(const Tensor& x, const Tensor& first, const Tensor& second) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "pair_products: x must be a floating [N, C], not ", x.toString(),
              x.sizes());
  for (const Tensor* index : {&first, &second}) {
    TORCH_CHECK(index->dim() == 1 && index->scalar_type() == at::kLong && index->sizes() == first.sizes(),
                "pair_products: pairs must be two [P] int64, not ", index->toString(), index->sizes());
  }
}

Tensor PairsForwardCpu(const Tensor& x_in, const Tensor& first_in, const Tensor& second_in) {
  CheckPairs(x_in, first_in, second_in);
  const Tensor x = x_in.contiguous(), first = first_in.contiguous(), second = second_in.contiguous();
  const int64_t pairs = first.size(0), width = x.size(1);
  Tensor out = at::empty({pairs, width}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pair_products", [&] {
    const scalar_t* const from = x.const_data_ptr<scalar_t>();
    const int64_t *const a = first.const_data_ptr<int64_t>(), *const b = second.const_data_ptr<int64_t>();
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    ParallelFor(0, pairs, std::max<int64_t>(1, kPairGrain / std::max<int64_t>(1, width)),
                [&](int64_t begin, int64_t end) {
                  for (int64_t p = begin; p < end; ++p) {
                    const scalar_t* const left = from + a[p] * width;
                    const scalar_t* const right = from + b[p] * width;
                    scalar_t* __restrict__ product = to + p * width;
                    for (int64_t c = 0; c < width; ++c) product[c] = left[c] * right[c];
                  }
                });
  });
  return out;
}

// grad: [P, C]. Rows stand in many pairs: threads share the columns, and each adds up all pairs in their order.
Tensor PairsBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const Tensor& first_in, const Tensor& second_in) {
  CheckPairs(x_in, first_in, second_in);
  const Tensor x = x_in.contiguous(), grad = grad_in.contiguous();
  const Tensor first = first_in.contiguous(), second = second_in.contiguous();
  const int64_t pairs = first.size(0), width = x.size(1);
  Tensor gx = at::zeros_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "pair_products_backward", [&] {
    const scalar_t *const from = x.const_data_ptr<scalar_t>(), *const g = grad.const_data_ptr<scalar_t>();
    const int64_t *const a = first.const_data_ptr<int64_t>(), *const b = second.const_data_ptr<int64_t>();
    scalar_t* const to = gx.mutable_data_ptr<scalar_t>();
    const int64_t groups = (width + kColumnsTogether - 1) / kColumnsTogether;
    const int64_t grain = std::max<int64_t>(1, kPairGrain / std::max<int64_t>(1, pairs * kColumnsTogether));
    ParallelFor(0, groups, grain, [&](int64_t begin, int64_t end) {
      const int64_t low = begin * kColumnsTogether, columns = std::min(width, end * kColumnsTogether) - low;
      for (int64_t p = 0; p < pairs; ++p) {
        const scalar_t* const of_pair = g + p * width + low;
        const scalar_t *const left = from + a[p] * width + low, *const right = from + b[p] * width + low;
        scalar_t *const to_left = to + a[p] * width + low, *const to_right = to + b[p] * width + low;
        for (int64_t c = 0; c < columns; ++c) to_left[c] += of_pair[c] * right[c];
        for (int64_t c = 0; c < columns; ++c) to_right[c] += of_pair[c] * left[c];
      }
    });
  });
  return gx;
}

constexpr Operator<PairsForwardCpu> kPairsForward{"pair_products(Tensor x, Tensor first, Tensor second) -> Tensor"};
constexpr Operator<PairsBackwardCpu> kPairsBackward{
    "pair_products_backward(Tensor grad, Tensor x, Tensor first, Tensor second) -> Tensor"};

class PairProductsFunction : public torch::autograd::Function<PairProductsFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& first,
                        const Tensor& second) {
    context->save_for_backward({x, first, second});
    return kPairsForward(x, first, second);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    return {kPairsBackward(grads[0], saved[0], saved[1], saved[2]), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kPairsForward.Register(library);
  kPairsBackward.Register(library);
}

Tensor PairProducts(const Tensor& x, const Tensor& first, const Tensor& second) {
  if (IsFused(x)) return PairProductsFunction::apply(x, first, second);
  return SelectRows(x, first) * SelectRows(x, second);
}

}  // namespace permafrost::nn
