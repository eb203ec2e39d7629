#include "nn/ops/masked_batch_norm.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "nn/gpu/operators.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"
#include "nn/ops/row_norm.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

std::tuple<Tensor, Tensor, Tensor> NormForwardCpu(const Tensor& x, const Tensor& real_rows, const Tensor& weight,
                                                  const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                                  double momentum, double eps) {
  const int64_t rows = RealRows(real_rows, x.size(0), "masked_batch_norm_relu");
  NormOutput made = NormalizeRows(x, rows, weight, bias, running_mean, running_var, {momentum, eps}, /*relu=*/true);
  return {made.y, made.mean, made.invstd};
}

std::tuple<Tensor, Tensor, Tensor> NormBackwardCpu(const Tensor& grad, const Tensor& x, const Tensor& y,
                                                   const Tensor& real_rows, const Tensor& weight, const Tensor& mean,
                                                   const Tensor& invstd) {
  const int64_t rows = RealRows(real_rows, x.size(0), "masked_batch_norm_relu");
  NormGradients g = NormalizeRowsBackward(grad, x, y, rows, weight, mean, invstd);
  return {g.x, g.weight, g.bias};
}

// [N, 1] bool: which rows are real. For devices whose operators cannot read real_rows on the host.
Tensor RealMask(const Tensor& x, const Tensor& real_rows) {
  return at::arange(x.size(0), real_rows.options()).lt(real_rows).unsqueeze(1);
}

std::tuple<Tensor, Tensor, Tensor> NormForwardComposite(const Tensor& x, const Tensor& real_rows, const Tensor& weight,
                                                        const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                                        double momentum, double eps) {
  const Tensor mask = RealMask(x, real_rows), zero = at::zeros({}, x.options());
  const Tensor count = real_rows.to(x.scalar_type()).clamp_min(1);
  const Tensor follows = real_rows.gt(kLeastNormRows - 1);
  const Tensor mean = at::where(follows, at::where(mask, x, zero).sum(0) / count, running_mean);
  const Tensor centered = at::where(mask, x - mean, zero);
  const Tensor squares = (centered * centered).sum(0);
  const Tensor invstd = (at::where(follows, squares / count, running_var) + eps).rsqrt();
  const Tensor y = at::where(mask, (centered * (invstd * weight) + bias).relu(), zero);
  const Tensor unbiased = at::where(follows, squares / (count - 1).clamp_min(1), running_var);
  running_mean.lerp_(mean, momentum);
  running_var.lerp_(unbiased, momentum);
  return {y, mean, invstd};
}

std::tuple<Tensor, Tensor, Tensor> NormBackwardComposite(const Tensor& grad, const Tensor& x, const Tensor& y,
                                                         const Tensor& real_rows, const Tensor& weight,
                                                         const Tensor& mean, const Tensor& invstd) {
  const Tensor mask = RealMask(x, real_rows), zero = at::zeros({}, x.options());
  const Tensor count = real_rows.to(x.scalar_type()).clamp_min(1);
  const Tensor g = at::where(at::bitwise_and(mask, y > 0), grad, zero);
  const Tensor centered = at::where(mask, x - mean, zero);
  const Tensor sum = g.sum(0), dot = (g * centered).sum(0);
  const Tensor follows = real_rows.gt(kLeastNormRows - 1);
  const Tensor mean_grad = at::where(follows, sum / count, zero);
  const Tensor mean_dot = at::where(follows, dot * invstd * invstd / count, zero);
  const Tensor gx = (weight * invstd) * (g - mean_grad - centered * mean_dot);
  return {at::where(mask, gx, zero), dot * invstd, sum};
}

std::tuple<Tensor, Tensor, Tensor> NormForwardGpu(const Tensor& x, const Tensor& real_rows, const Tensor& weight,
                                                  const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                                  double momentum, double eps) {
  return HasColumnKernels(x, x.size(0))
             ? gpu::NormForward(x, real_rows, weight, bias, running_mean, running_var, momentum, eps)
             : NormForwardComposite(x, real_rows, weight, bias, running_mean, running_var, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor> NormBackwardGpu(const Tensor& grad, const Tensor& x, const Tensor& y,
                                                   const Tensor& real_rows, const Tensor& weight, const Tensor& mean,
                                                   const Tensor& invstd) {
  return HasColumnKernels(x, x.size(0)) ? gpu::NormBackward(grad, x, y, real_rows, weight, mean, invstd)
                                        : NormBackwardComposite(grad, x, y, real_rows, weight, mean, invstd);
}

constexpr Operator<NormForwardCpu> kNormForward{
    "masked_batch_norm_relu(Tensor x, Tensor real_rows, Tensor weight, Tensor bias, Tensor(a!) running_mean, "
    "Tensor(b!) running_var, float momentum, float eps) -> (Tensor, Tensor, Tensor)"};
constexpr Operator<NormBackwardCpu> kNormBackward{
    "masked_batch_norm_relu_backward(Tensor grad, Tensor x, Tensor y, Tensor real_rows, Tensor weight, Tensor mean, "
    "Tensor invstd) -> (Tensor, Tensor, Tensor)"};

// The norm that comes before it on this thread has counted the rows of all ranks.
void CountSharedBatch(Tensor& batches) {
  if (MergedRows() >= kLeastNormRows) ++*batches.mutable_data_ptr<int64_t>();
}
constexpr Operator<CountSharedBatch> kCountSharedBatch{"count_shared_batch(Tensor(a!) batches) -> ()"};

class MaskedBatchNormReluFunction : public torch::autograd::Function<MaskedBatchNormReluFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& real_rows,
                        const Tensor& weight, const Tensor& bias, Tensor running_mean, Tensor running_var,
                        double momentum, double eps) {
    auto [y, mean, invstd] = kNormForward(x, real_rows, weight, bias, running_mean, running_var, momentum, eps);
    context->save_for_backward({x, y, real_rows, weight, mean, invstd});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = context->get_saved_variables();
    auto [gx, gw, gb] = kNormBackward(grads[0], saved[0], saved[1], saved[2], saved[3], saved[4], saved[5]);
    return {gx, Tensor(), gw, gb, Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kNormForward.Register(library, NormForwardComposite, NormForwardGpu);
  kNormBackward.Register(library, NormBackwardComposite, NormBackwardGpu);
  kCountSharedBatch.Register(library);
}

void CountNormBatch(const Tensor& batches, const Tensor& real_rows) {
  if (collective::IsShared()) {
    Tensor counted = batches;
    return kCountSharedBatch(counted);
  }
  batches.add_(real_rows.reshape({}).gt(kLeastNormRows - 1).to(at::kLong));
}

Tensor MaskedBatchNormRelu(const Tensor& x, const Tensor& real_rows, const Tensor& weight, const Tensor& bias,
                           Tensor& running_mean, Tensor& running_var, const BatchNormOptions& options) {
  return MaskedBatchNormReluFunction::apply(x, real_rows, weight, bias, running_mean, running_var, options.momentum,
                                            options.eps);
}

Tensor BatchNormReluEval(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                         const Tensor& running_var, const BatchNormOptions& options) {
  const Tensor scale = weight * (running_var + options.eps).rsqrt();
  return at::addcmul(bias - running_mean * scale, x, scale).relu_();
}

}  // namespace permafrost::nn
