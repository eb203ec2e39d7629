#include "nn/ops/mlp.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "nn/gpu/operators.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor> MlpForwardCpu(const Tensor& x_in, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                                         const Tensor& b2, bool bfloat16) {
  const Tensor x = x_in.contiguous();
  const MlpWeights w{w1.contiguous(), b1, w2.contiguous(), b2, ProductsOf(x, bfloat16)};
  const MlpWidths widths = w.widths();
  const int64_t rows = x.size(0);
  TORCH_CHECK(x.dim() == 2 && x.size(1) == widths.in && w2.size(1) == widths.hidden, "mlp: x ", x.sizes(), ", w1 ",
              w1.sizes(), " and w2 ", w2.sizes(), " do not match");
  Tensor y = at::empty({rows, widths.out}, x.options()), hidden = at::empty({rows, widths.hidden}, x.options());
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "mlp", [&] {
    const PackedMlp<scalar_t> packed = PackMlpForward<scalar_t>(w);
    const RowChunks chunks(rows, w.values());
    ForChunks(chunks, ChunkGrain(chunks, rows * w.products()), [&](int64_t, int64_t begin, int64_t size) {
      MlpForward<scalar_t>(widths, size, Read<scalar_t>(x) + begin * widths.in, packed.first, Read<scalar_t>(b1),
                           packed.second, Read<scalar_t>(b2), Write<scalar_t>(hidden) + begin * widths.hidden,
                           Write<scalar_t>(y) + begin * widths.out);
    });
  });
  return {y, hidden};
}

using MlpBackwardResult = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

MlpBackwardResult MlpBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const Tensor& hidden, const Tensor& w1,
                                 const Tensor& b1, const Tensor& w2, const Tensor& b2, bool bfloat16) {
  const Tensor grad = grad_in.contiguous(), x = x_in.contiguous();
  const MlpWeights w{w1.contiguous(), b1, w2.contiguous(), b2, ProductsOf(x, bfloat16)};
  const int64_t rows = x.size(0);
  Tensor gx = at::empty_like(x);
  const MlpWeights to = w.EmptyLike();
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "mlp_backward", [&] {
    const RowChunks chunks(rows, w.values());
    const int64_t grain = ChunkGrain(chunks, rows * w.products());
    MlpBackwardChunks<scalar_t> backward(w, rows);
    ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
      backward.Run(c, begin, size, Read<scalar_t>(x), Read<scalar_t>(hidden), Read<scalar_t>(grad),
                   Write<scalar_t>(gx));
    });
    ForChunks(chunks, grain, [&](int64_t c, int64_t, int64_t) { backward.AddShare(c, chunks.count(), to); });
  });
  return {gx, to.w1, to.b1, to.w2, to.b2};
}

constexpr Operator<MlpForwardCpu> kMlpForward{
    "mlp(Tensor x, Tensor w1, Tensor b1, Tensor w2, Tensor b2, bool bfloat16) -> (Tensor, Tensor)"};
constexpr Operator<MlpBackwardCpu> kMlpBackward{
    "mlp_backward(Tensor grad, Tensor x, Tensor hidden, Tensor w1, Tensor b1, Tensor w2, Tensor b2, "
    "bool bfloat16) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"};

class MlpFunction : public torch::autograd::Function<MlpFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& w1, const Tensor& b1,
                        const Tensor& w2, const Tensor& b2) {
    const bool bfloat16 = RoundsFactors(x);
    auto [y, hidden] = kMlpForward(x, w1, b1, w2, b2, bfloat16);
    context->saved_data["bfloat16"] = bfloat16;
    context->save_for_backward({x, hidden, w1, b1, w2, b2});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto s = context->get_saved_variables();
    auto [gx, gw1, gb1, gw2, gb2] =
        kMlpBackward(grads[0], s[0], s[1], s[2], s[3], s[4], s[5], context->saved_data["bfloat16"].toBool());
    return {gx, gw1, gb1, gw2, gb2};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kMlpForward.Register(library, nullptr, gpu::MlpForward);
  kMlpBackward.Register(library, nullptr, gpu::MlpBackward);
}

Tensor Mlp(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& b2) {
  if (HasColumnKernels(x, x.size(0))) return MlpFunction::apply(x, w1, b1, w2, b2);
  return LinearRows(ReluRows(LinearRows(x, w1, b1)), w2, b2);
}

}  // namespace permafrost::nn
