// Layers: message passing, MLP and batch norm.
#include <ATen/ATen.h>

#include <tuple>

#include "nn/gpu/launch.h"
#include "nn/gpu/operators.h"
#include "nn/kernels/norm.h"

namespace permafrost::nn::gpu {
namespace {

template <class T>
const T* FromOrNull(const OptionalTensor& t) {
  return t ? t->const_data_ptr<T>() : nullptr;
}
OptionalTensor InOrder(const OptionalTensor& t) { return t ? OptionalTensor(t->contiguous()) : std::nullopt; }

// Dropout of one step; threshold 0: none.
struct Drop {
  const int64_t* step = nullptr;
  uint32_t seed = 0, threshold = 0;
  float kept = 1;
};

std::tuple<Tensor, Tensor, Tensor> Normalize(const Tensor& x, const Tensor& real_rows, const Tensor& weight,
                                             const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                             int64_t* batches, double momentum, double eps, const Drop& drop) {
  Tensor y = at::empty_like(x), mean = at::empty_like(weight), invstd = at::empty_like(weight);
  LaunchOnColumns("norm_forward", x.size(1), 1, From(x), real_rows.const_data_ptr<int64_t>(), From(weight), From(bias),
                  To(running_mean), To(running_var), batches, drop.step, x.size(0), x.size(1),
                  static_cast<float>(momentum), static_cast<float>(eps), drop.seed, drop.threshold, drop.kept, To(y),
                  To(mean), To(invstd));
  return {y, mean, invstd};
}

struct NormGradients {
  Tensor x, weight, bias;
};

// before_bias: undefined, or gets the gradient of a bias that x had.
NormGradients NormalizeBackward(const Tensor& grad_in, const Tensor& x, const Tensor& y, const Tensor& real_rows,
                                const Tensor& weight, const Tensor& mean, const Tensor& invstd, float kept,
                                const Tensor& before_bias) {
  const Tensor grad = grad_in.contiguous();
  const NormGradients to{at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
  LaunchOnColumns("norm_backward", x.size(1), 1, From(grad), From(x), From(y), real_rows.const_data_ptr<int64_t>(),
                  From(weight), From(mean), From(invstd), x.size(0), x.size(1), kept, To(to.x), To(to.weight),
                  To(to.bias), before_bias.defined() ? To(before_bias) : nullptr);
  return to;
}

// relu(x * w1^T + b1). ReLU is no part of the product: cuBLAS's own would make 0 of NaN.
Tensor Hidden(const Tensor& x, const Tensor& w1, const Tensor& b1) { return at::addmm(b1, x, w1.t()).relu_(); }

struct MlpGradients {
  Tensor x, w1, b1, w2;
};

MlpGradients BackwardOfMlp(const Tensor& grad, const Tensor& x, const Tensor& hidden, const Tensor& w1,
                           const Tensor& w2) {
  const Tensor within = grad.mm(w2);
  const Tensor b1 = at::empty({w1.size(0)}, w1.options());
  LaunchOnColumns("relu_backward", hidden.size(1), 1, From(hidden), hidden.size(0), hidden.size(1), To(within), To(b1));
  return {within.mm(w1), within.t().mm(x), b1, grad.t().mm(hidden)};
}

Tensor SumMessages(const Tensor& x, const OptionalTensor& rows, const OptionalTensor& code, const Tensor& source,
                   const Tensor& in_offsets) {
  Tensor sum = at::empty_like(x);
  LaunchOnRows("gine_sum", x.size(0), From(x), FromOrNull<float>(rows), FromOrNull<int32_t>(code),
               source.const_data_ptr<int64_t>(), in_offsets.const_data_ptr<int32_t>(), x.size(0), x.size(1), To(sum));
  return sum;
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> NormForward(const Tensor& x, const Tensor& real_rows, const Tensor& weight,
                                               const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                               double momentum, double eps) {
  return Normalize(x.contiguous(), real_rows, weight, bias, running_mean, running_var, nullptr, momentum, eps, {});
}

std::tuple<Tensor, Tensor, Tensor> NormBackward(const Tensor& grad, const Tensor& x, const Tensor& y,
                                                const Tensor& real_rows, const Tensor& weight, const Tensor& mean,
                                                const Tensor& invstd) {
  const NormGradients g = NormalizeBackward(grad, x.contiguous(), y, real_rows, weight, mean, invstd, 1, {});
  return {g.x, g.weight, g.bias};
}

std::tuple<Tensor, Tensor> MlpForward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                                      const Tensor& b2, bool /*bfloat16*/) {
  const Tensor hidden = Hidden(x, w1, b1);
  return {at::addmm(b2, hidden, w2.t()), hidden};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> MlpBackward(const Tensor& grad_in, const Tensor& x,
                                                               const Tensor& hidden, const Tensor& w1,
                                                               const Tensor& /*b1*/, const Tensor& w2,
                                                               const Tensor& /*b2*/, bool /*bfloat16*/) {
  const Tensor grad = grad_in.contiguous(), b2 = at::empty({w2.size(0)}, w2.options());
  LaunchOnColumns("column_sums", grad.size(1), 1, From(grad), grad.size(0), grad.size(1), To(b2));
  const MlpGradients g = BackwardOfMlp(grad, x, hidden, w1, w2);
  return {g.x, g.w1, g.b1, g.w2, b2};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> GineForward(
    const Tensor& x_in, const OptionalTensor& edge_rows, const OptionalTensor& code, const Tensor& source,
    const Tensor& in_offsets, const Tensor& real_rows, const Tensor& w1, const Tensor& b1, const Tensor& w2,
    const Tensor& b2, const Tensor& norm_weight, const Tensor& norm_bias, Tensor& running_mean, Tensor& running_var,
    Tensor& batches, const Tensor& step, double momentum, double eps, int64_t seed, int64_t layer, double p,
    bool /*bfloat16*/) {
  const Tensor x = x_in.contiguous();
  const Tensor sum = SumMessages(x, InOrder(edge_rows), InOrder(code), source.contiguous(), in_offsets);
  const Tensor hidden = Hidden(sum, w1, b1);
  const Tensor product = at::addmm(b2, hidden, w2.t());
  const Drop drop{.step = step.const_data_ptr<int64_t>(),
                  .seed = DropoutSeed(seed, layer),
                  .threshold = p > 0 ? DropoutThreshold(p) : 0,
                  .kept = static_cast<float>(1 / (1 - p))};
  auto [y, mean, invstd] = Normalize(product, real_rows, norm_weight, norm_bias, running_mean, running_var,
                                     batches.mutable_data_ptr<int64_t>(), momentum, eps, drop);
  return {y, sum, hidden, product, mean, invstd};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> GineBackward(
    const Tensor& grad, const Tensor& x_in, const OptionalTensor& edge_rows_in, const OptionalTensor& code_in,
    const Tensor& out_offsets, const Tensor& out_targets, const Tensor& out_edges, const Tensor& real_rows,
    const Tensor& w1, const Tensor& /*b1*/, const Tensor& w2, const Tensor& /*b2*/, const Tensor& norm_weight,
    const Tensor& y, const Tensor& sum, const Tensor& hidden, const Tensor& product, const Tensor& mean,
    const Tensor& invstd, double p, bool /*bfloat16*/) {
  const Tensor x = x_in.contiguous(), b2 = at::empty({w2.size(0)}, w2.options());
  const OptionalTensor edge_rows = InOrder(edge_rows_in), code = InOrder(code_in);
  const NormGradients norm =
      NormalizeBackward(grad, product, y, real_rows, norm_weight, mean, invstd, static_cast<float>(1 / (1 - p)), b2);
  const MlpGradients mlp = BackwardOfMlp(norm.x, sum, hidden, w1, w2);
  const int64_t nodes = x.size(0), columns = x.size(1), edges = out_edges.size(0);
  const Tensor gx = at::empty_like(x), messages = at::empty({edge_rows ? edges : 0, columns}, x.options());
  LaunchOnRows("gine_gradient", nodes, From(x), FromOrNull<float>(edge_rows), FromOrNull<int32_t>(code),
               out_offsets.const_data_ptr<int32_t>(), out_targets.const_data_ptr<int32_t>(),
               out_edges.const_data_ptr<int32_t>(), From(mlp.x), nodes, columns, To(gx), To(messages));
  Tensor of_rows = messages;
  if (code) {
    of_rows = at::empty_like(*edge_rows);
    LaunchOnColumns("code_gradient", columns, edge_rows->size(0), FromOrNull<int32_t>(code), From(messages), edges,
                    columns, To(of_rows));
  }
  return {gx, of_rows, mlp.w1, mlp.b1, mlp.w2, b2, norm.weight, norm.bias};
}

Tensor GineEval(const Tensor& x_in, const OptionalTensor& edge_rows, const OptionalTensor& code, const Tensor& source,
                const Tensor& in_offsets, const Tensor& /*real_rows*/, const Tensor& w1, const Tensor& b1,
                const Tensor& w2, const Tensor& b2, const Tensor& scale, const Tensor& shift, bool /*bfloat16*/) {
  const Tensor sum = SumMessages(x_in.contiguous(), InOrder(edge_rows), InOrder(code), source.contiguous(), in_offsets);
  return at::addcmul(shift, at::addmm(b2, Hidden(sum, w1, b1), w2.t()), scale).relu_();
}

Tensor SegmentReduce(const Tensor& x_in, const Tensor& offsets_in, const Tensor& sources_in,
                     const OptionalTensor& weights_in, bool mean) {
  const Tensor x = x_in.stride(1) == 1 ? x_in : x_in.contiguous(), offsets = offsets_in.contiguous(),
               sources = sources_in.contiguous();
  const OptionalTensor weights = InOrder(weights_in);
  const int64_t rows = offsets.size(0) - 1, columns = x.size(1);
  Tensor out = at::empty({rows, columns}, x.options());
  LaunchOnRows("segment_reduce", rows, From(x), x.stride(0), offsets.const_data_ptr<int64_t>(),
               sources.const_data_ptr<int64_t>(), FromOrNull<float>(weights), rows, columns, static_cast<int>(mean),
               To(out));
  return out;
}

std::tuple<Tensor, Tensor, Tensor, Tensor> EdgeIndex(const Tensor& source_in, const Tensor& target_in, int64_t nodes) {
  const Tensor source = source_in.contiguous(), target = target_in.contiguous();
  const int64_t edges = source.size(0);
  if (edges > kMostCountedEdges) {
    auto [rising, order] = at::sort(source, /*stable=*/true, /*dim=*/0, /*descending=*/false);
    return {at::_convert_indices_from_coo_to_csr(target, nodes, /*out_int32=*/true),
            at::_convert_indices_from_coo_to_csr(rising, nodes, /*out_int32=*/true),
            target.index_select(0, order).to(at::kInt), order.to(at::kInt)};
  }
  const at::TensorOptions ints = source.options().dtype(at::kInt);
  Tensor in_offsets = at::empty({nodes + 1}, ints), out_offsets = at::empty({nodes + 1}, ints);
  Tensor out_targets = at::empty({edges}, ints), out_edges = at::empty({edges}, ints);
  LaunchOnRows("edge_index", edges + nodes + 1, source.const_data_ptr<int64_t>(), target.const_data_ptr<int64_t>(),
               edges, nodes, in_offsets.mutable_data_ptr<int32_t>(), out_offsets.mutable_data_ptr<int32_t>(),
               out_targets.mutable_data_ptr<int32_t>(), out_edges.mutable_data_ptr<int32_t>());
  return {in_offsets, out_offsets, out_targets, out_edges};
}

}  // namespace permafrost::nn::gpu
