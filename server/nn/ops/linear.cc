#include "nn/ops/linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "nn/gpu/operators.h"
#include "nn/kernels/linear.h"
#include "nn/kernels/norm.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Sizes of a checked call.
struct LinearSizes {
  LinearSizes(const Tensor& x, const Tensor& weight) {
    TORCH_CHECK(x.dim() >= 1 && x.is_floating_point() && weight.dim() == 2 && weight.scalar_type() == x.scalar_type() &&
                    x.size(-1) == weight.size(1),
                "row_linear: x ", x.toString(), x.sizes(), " and weight ", weight.toString(), weight.sizes(),
                " do not match");
    in = weight.size(1);
    out = weight.size(0);
    rows = c10::multiply_integers(x.sizes().slice(0, static_cast<size_t>(x.dim()) - 1));
  }
  int64_t rows, in, out;
};

Tensor RowLinearCpu(const Tensor& x_in, const Tensor& weight, const OptionalTensor& bias_in, bool relu, bool bfloat16) {
  const LinearSizes s(x_in, weight);
  const Tensor x = x_in.contiguous(), bias = bias_in ? bias_in->contiguous() : at::zeros({s.out}, x.options());
  TORCH_CHECK(bias.numel() == s.out && bias.scalar_type() == x.scalar_type(), "row_linear: the bias must be [", s.out,
              "] of x's type, not ", bias.toString(), bias.sizes());
  const LinearWidths widths{s.in, s.out, ProductsOf(x, bfloat16)};
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() = s.out;
  Tensor y = at::empty(sizes, x.options());
  const RowChunks chunks(s.rows, s.in * s.out);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "row_linear", [&] {
    using T = scalar_t;
    const Tensor packed = at::empty({PackedSize<T>(s.in, s.out, widths.products)}, x.options());
    PackForward<T>(Read<T>(weight.contiguous()), s.out, s.in, widths.products, Write<T>(packed));
    const T *const from = Read<T>(x), *const added = Read<T>(bias);
    T* const to = Write<T>(y);
    ForChunks(chunks, ChunkGrain(chunks, s.rows * s.in * s.out), [&](int64_t, int64_t begin, int64_t size) {
      LinearForward<T>(widths, size, from + begin * s.in, Read<T>(packed), added, relu, to + begin * s.out);
    });
  });
  return y;
}

// y: the output if ReLU followed the map, else none. Returns the gradients of x, weight and bias; a gradient that is
// not wanted is [0].
std::tuple<Tensor, Tensor, Tensor> RowLinearBackwardCpu(const Tensor& grad_in, const Tensor& x_in,
                                                        const OptionalTensor& y, const Tensor& weight,
                                                        std::array<bool, 3> wanted, bool bfloat16) {
  const LinearSizes s(x_in, weight);
  const Tensor grad = grad_in.contiguous(), x = x_in.contiguous();
  const LinearWidths widths{s.in, s.out, ProductsOf(x, bfloat16)};
  const auto type = x.options();
  const bool wants_x = wanted[0], wants_weight = wanted[1], wants_bias = wanted[2];
  Tensor gx = wants_x ? at::empty(x.sizes(), type) : at::empty({0}, type);
  Tensor gw = wants_weight ? at::empty({s.out, s.in}, type) : at::empty({0}, type);
  Tensor gb = wants_bias ? at::empty({s.out}, type) : at::empty({0}, type);
  const int64_t weights = wants_weight ? s.out * s.in : 0, partial = weights + s.out;
  const RowChunks chunks(s.rows, s.in * s.out);
  const int64_t grain = ChunkGrain(chunks, s.rows * s.in * s.out), most = chunks.count();
  const Tensor g = y ? at::empty_like(grad) : Tensor();  // the gradient of ReLU's input
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "row_linear_backward", [&] {
    using T = scalar_t;
    const int64_t scratch_size = wants_weight ? ProductScratch<T>(s.rows / most + 1, widths.products) : 0;
    const Tensor parts = at::empty({most, partial}, type), scratch = at::empty({most, scratch_size}, type);
    Tensor packed;
    if (wants_x) {
      packed = at::empty({PackedSize<T>(s.out, s.in, widths.products)}, type);
      PackBackward<T>(Read<T>(weight.contiguous()), s.out, s.in, widths.products, Write<T>(packed));
    }
    const T *const from = Read<T>(x), *const out = y ? Read<T>(*y) : nullptr, *const given = Read<T>(grad);
    T* const passed = out == nullptr ? nullptr : Write<T>(g);
    T* const to = wants_x ? Write<T>(gx) : nullptr;
    ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
      const int64_t at = begin * s.out;
      T* const part = Write<T>(parts) + c * partial;
      if (out != nullptr || wants_bias) {
        ActivationGradient<T>(given + at, out == nullptr ? nullptr : out + at, T(1), size, s.out,
                              out == nullptr ? nullptr : passed + at, part + weights);
      }
      LinearBackward<T>(widths, size, from + begin * s.in, (out == nullptr ? given : passed) + at,
                        wants_x ? Read<T>(packed) : nullptr, Write<T>(scratch) + c * scratch_size,
                        to == nullptr ? nullptr : to + begin * s.in, wants_weight ? part : nullptr);
    });
    if (wants_weight) {
      ForChunks(chunks, grain, [&](int64_t c, int64_t, int64_t) {
        const int64_t begin = weights * c / most, end = weights * (c + 1) / most;
        AddParts<T>(Read<T>(parts) + begin, partial, most, end - begin, Write<T>(gw) + begin);
      });
    }
    if (wants_bias) AddParts<T>(Read<T>(parts) + weights, partial, most, s.out, Write<T>(gb));
  });
  return {gx, gw, gb};
}

constexpr Operator<RowLinearCpu> kRowLinear{
    "row_linear_forward(Tensor x, Tensor weight, Tensor? bias, bool relu, bool bfloat16) -> Tensor"};
constexpr Operator<RowLinearBackwardCpu> kRowLinearBackward{
    "row_linear_backward(Tensor grad, Tensor x, Tensor? y, Tensor weight, bool[3] wanted, bool bfloat16) "
    "-> (Tensor, Tensor, Tensor)"};

class RowLinearFunction : public torch::autograd::Function<RowLinearFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const OptionalTensor& bias, bool relu) {
    const bool bfloat16 = RoundsFactors(x);
    Tensor y = kRowLinear(x, weight, bias, relu, bfloat16);
    context->save_for_backward({x, relu ? y : Tensor(), weight});
    context->saved_data["bfloat16"] = bfloat16;
    context->saved_data["bias"] = bias.has_value();
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto s = context->get_saved_variables();
    const std::array<bool, 3> wanted{context->needs_input_grad(0), context->needs_input_grad(1),
                                     context->saved_data["bias"].toBool() && context->needs_input_grad(2)};
    auto [gx, gw, gb] =
        kRowLinearBackward(grads[0], s[0], IfDefined(s[1]), s[2], wanted, context->saved_data["bfloat16"].toBool());
    return {wanted[0] ? gx : Tensor(), wanted[1] ? gw : Tensor(), wanted[2] ? gb : Tensor(), Tensor()};
  }
};

Tensor RowLinearOfProgram(const Tensor& x, const Tensor& weight, const OptionalTensor& bias, bool relu) {
  return RowLinear(x, weight, bias.value_or(Tensor()), relu);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kRowLinear.Register(library);
  kRowLinearBackward.Register(library);
  library.def("row_linear(Tensor x, Tensor weight, Tensor? bias, bool relu) -> Tensor");
  library.impl("row_linear", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, RowLinearOfProgram));
}

bool RunsRowLinear(c10::Device device) { return device.is_cpu(); }

Tensor RowLinear(const Tensor& x, const Tensor& weight, const Tensor& bias, bool relu) {
  return RowLinearFunction::apply(x, weight, IfDefined(bias), relu);
}

namespace {

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
