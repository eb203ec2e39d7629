#include "nn/ops/masked_batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "nn/gpu/operators.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Columns handled together: their running sums stay in registers and L1 while rows stream by once.
constexpr int64_t kBlock = 64;
// Below this many values the work stays on one thread: small parallel regions collapse when cores are shared. At half
// of it, 40 us of work, two threads were as fast as one: `bench/run parallel --filter norms`.
constexpr int64_t kParallelValues = 1 << 17;

template <class Body>
void ForColumnBlocks(int64_t rows, int64_t columns, Body body) {
  const int64_t blocks = (columns + kBlock - 1) / kBlock;
  const int64_t grain = std::max<int64_t>(1, kParallelValues / std::max<int64_t>(1, rows * kBlock));
  at::parallel_for(0, blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) body(b * kBlock, std::min(columns, (b + 1) * kBlock));
  });
}

// Makes kSums sums over rows; add(row, parts) adds a row to parts for each column. A few rows at a time are summed, and
// these sums added up in float64: one running sum of float32 over the 230,000 rows of a large batch put gradients a
// hundredth off.
constexpr int64_t kPartRows = 128;
template <class T, size_t kSums, class Add>
std::array<std::array<double, kBlock>, kSums> SumOverRows(int64_t rows, const Add& add) {
  std::array<std::array<double, kBlock>, kSums> totals{};
  for (int64_t begin = 0; begin < rows; begin += kPartRows) {
    std::array<std::array<T, kBlock>, kSums> parts{};
    for (int64_t r = begin; r < std::min(rows, begin + kPartRows); ++r) add(r, parts);
    for (size_t s = 0; s < kSums; ++s) {
      for (size_t c = 0; c < kBlock; ++c) totals[s][c] += static_cast<double>(parts[s][c]);
    }
  }
  return totals;
}

template <class T>
void ForwardBlock(const T* __restrict__ x, int64_t all_rows, int64_t rows, int64_t columns, int64_t c0, int64_t c1,
                  const T* weight, const T* bias, T* running_mean, T* running_var, double momentum, double eps,
                  T* __restrict__ y, T* mean, T* invstd) {
  const int64_t width = c1 - c0;
  const auto count = static_cast<double>(std::max<int64_t>(1, rows));
  const bool follows = rows >= kLeastNormRows;
  std::array<T, kBlock> scale, shift;
  const auto [sum] = SumOverRows<T, 1>(rows, [&](int64_t r, auto& parts) {
    for (int64_t c = 0; c < width; ++c) parts[0][c] += x[r * columns + c0 + c];
  });
  for (int64_t c = 0; c < width; ++c) mean[c0 + c] = static_cast<T>(sum[c] / count);
  const auto [squares] = SumOverRows<T, 1>(rows, [&](int64_t r, auto& parts) {
    for (int64_t c = 0; c < width; ++c) {
      const T d = x[r * columns + c0 + c] - mean[c0 + c];
      parts[0][c] += d * d;
    }
  });
  for (int64_t c = 0; c < width; ++c) {
    if (!follows) mean[c0 + c] = running_mean[c0 + c];
    const T var = follows ? static_cast<T>(squares[c] / count) : running_var[c0 + c];
    const T inv = T(1) / std::sqrt(var + static_cast<T>(eps));
    invstd[c0 + c] = inv;
    scale[c] = inv * weight[c0 + c];
    shift[c] = bias[c0 + c] - mean[c0 + c] * scale[c];
    if (!follows) continue;
    const T unbiased = static_cast<T>(squares[c] / static_cast<double>(rows - 1));
    running_mean[c0 + c] += static_cast<T>(momentum) * (mean[c0 + c] - running_mean[c0 + c]);
    running_var[c0 + c] += static_cast<T>(momentum) * (unbiased - running_var[c0 + c]);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const T v = x[r * columns + c0 + c] * scale[c] + shift[c];
      y[r * columns + c0 + c] = v < T(0) ? T(0) : v;  // keeps NaN, as relu does
    }
  for (int64_t r = rows; r < all_rows; ++r) std::fill_n(y + r * columns + c0, width, T(0));
}

std::tuple<Tensor, Tensor, Tensor> NormForwardCpu(const Tensor& x_in, const Tensor& real_rows, const Tensor& weight,
                                                  const Tensor& bias, Tensor& running_mean, Tensor& running_var,
                                                  double momentum, double eps) {
  const Tensor x = x_in.contiguous();
  const int64_t rows = RealRows(real_rows, x.size(0), "masked_batch_norm_relu");
  Tensor y = at::empty_like(x);
  Tensor mean = at::empty_like(weight), invstd = at::empty_like(weight);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "masked_batch_norm_relu", [&] {
    ForColumnBlocks(rows, x.size(1), [&](int64_t c0, int64_t c1) {
      ForwardBlock<scalar_t>(x.const_data_ptr<scalar_t>(), x.size(0), rows, x.size(1), c0, c1,
                             weight.const_data_ptr<scalar_t>(), bias.const_data_ptr<scalar_t>(),
                             running_mean.mutable_data_ptr<scalar_t>(), running_var.mutable_data_ptr<scalar_t>(),
                             momentum, eps, y.mutable_data_ptr<scalar_t>(), mean.mutable_data_ptr<scalar_t>(),
                             invstd.mutable_data_ptr<scalar_t>());
    });
  });
  return {y, mean, invstd};
}

template <class T>
void BackwardBlock(const T* __restrict__ grad, const T* __restrict__ x, const T* __restrict__ y, int64_t all_rows,
                   int64_t rows, int64_t columns, int64_t c0, int64_t c1, const T* weight, const T* mean,
                   const T* invstd, T* __restrict__ gx, T* gw, T* gb) {
  const int64_t width = c1 - c0;
  const auto count = static_cast<double>(std::max<int64_t>(1, rows));
  const bool follows = rows >= kLeastNormRows;
  std::array<T, kBlock> scale, mean_grad, mean_dot, center;
  for (int64_t c = 0; c < width; ++c) center[c] = mean[c0 + c];
  // Read whatever y is: a branch around the read would keep the loops from vectorising.
  const auto passed = [&](int64_t i) {
    const T upstream = grad[i];
    return y[i] > T(0) ? upstream : T(0);
  };
  const auto [sum, dot] = SumOverRows<T, 2>(rows, [&](int64_t r, auto& parts) {
    for (int64_t c = 0; c < width; ++c) {
      const int64_t i = r * columns + c0 + c;
      const T g = passed(i);
      parts[0][c] += g;
      parts[1][c] += g * (x[i] - center[c]);
    }
  });
  for (int64_t c = 0; c < width; ++c) {
    const T inv = invstd[c0 + c];
    gb[c0 + c] = static_cast<T>(sum[c]);
    gw[c0 + c] = static_cast<T>(dot[c]) * inv;
    scale[c] = weight[c0 + c] * inv;
    // Running statistics are constants: nothing of the gradient passes through them.
    mean_grad[c] = follows ? static_cast<T>(sum[c] / count) : T(0);
    mean_dot[c] = follows ? static_cast<T>(dot[c] * static_cast<double>(inv) * static_cast<double>(inv) / count) : T(0);
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t i = r * columns + c0 + c;
      gx[i] = scale[c] * (passed(i) - mean_grad[c] - (x[i] - center[c]) * mean_dot[c]);
    }
  for (int64_t r = rows; r < all_rows; ++r) std::fill_n(gx + r * columns + c0, width, T(0));
}

std::tuple<Tensor, Tensor, Tensor> NormBackwardCpu(const Tensor& grad_in, const Tensor& x_in, const Tensor& y,
                                                   const Tensor& real_rows, const Tensor& weight, const Tensor& mean,
                                                   const Tensor& invstd) {
  const Tensor grad = grad_in.contiguous(), x = x_in.contiguous();
  const int64_t rows = RealRows(real_rows, x.size(0), "masked_batch_norm_relu");
  Tensor gx = at::empty_like(x);
  Tensor gw = at::empty_like(weight), gb = at::empty_like(weight);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "masked_batch_norm_relu_backward", [&] {
    ForColumnBlocks(rows, x.size(1), [&](int64_t c0, int64_t c1) {
      BackwardBlock<scalar_t>(grad.const_data_ptr<scalar_t>(), x.const_data_ptr<scalar_t>(),
                              y.const_data_ptr<scalar_t>(), x.size(0), rows, x.size(1), c0, c1,
                              weight.const_data_ptr<scalar_t>(), mean.const_data_ptr<scalar_t>(),
                              invstd.const_data_ptr<scalar_t>(), gx.mutable_data_ptr<scalar_t>(),
                              gw.mutable_data_ptr<scalar_t>(), gb.mutable_data_ptr<scalar_t>());
    });
  });
  return {gx, gw, gb};
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
}

void CountNormBatch(const Tensor& batches, const Tensor& real_rows) {
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
