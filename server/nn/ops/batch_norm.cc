#include "nn/ops/batch_norm.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <tuple>

#include "nn/gpu/operators.h"
#include "nn/kernels/norm.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// With fewer values the work stays on one thread, since small parallel regions are slow on shared cores. At half as
// many values (40 us of work) two threads were as fast as one: `bench/run parallel --filter norms`.
constexpr int64_t kParallelNormValues = 1 << 17;

// With this limit, chunks of 64 columns have 128 rows if the input has at most half a million rows. A wider chunk
// starts to grow at a smaller input. A running float32 sum over 230,000 rows made gradients wrong by a hundredth.
constexpr int64_t kMostChunks = 4096;

// Returns memory for two sums per column and chunk. Its size depends on the number of all rows, padding included, and
// not on the number of real rows.
Tensor SumsOfChunks(const Tensor& x) {
  return at::empty({RowChunks::CountOf(x.size(0), 2 * x.size(1), kMostChunks), 2, x.size(1)}, x.options());
}

// The row count, over all ranks, of the last norm whose moments this thread merged.
thread_local int64_t merged_rows = 0;

}  // namespace

void MergeMoments(int64_t& rows, std::vector<double>& means, std::vector<double>& squares) {
  merged_rows = rows;
  collective::Group* const group = collective::Current();
  if (group == nullptr) return;
  const size_t width = means.size();
  std::vector<double> own{static_cast<double>(rows)};
  own.insert(own.end(), means.begin(), means.end());
  own.insert(own.end(), squares.begin(), squares.end());
  const std::vector<double> all = group->AllGather(own);
  const auto ranks = static_cast<size_t>(group->size());
  const auto of = [&](size_t rank) { return all.data() + rank * own.size(); };
  double count = 0;
  for (size_t r = 0; r < ranks; ++r) count += of(r)[0];
  std::ranges::fill(means, 0);
  std::ranges::fill(squares, 0);
  // Merges the moments of parts (Chan et al. 1983). Here each rank is a part.
  for (size_t r = 0; r < ranks; ++r) {
    const double part = count > 0 ? of(r)[0] / count : 0;
    for (size_t d = 0; d < width; ++d) means[d] += of(r)[1 + d] * part;
  }
  for (size_t r = 0; r < ranks; ++r) {
    for (size_t d = 0; d < width; ++d) {
      const double away = of(r)[1 + d] - means[d];
      squares[d] += of(r)[1 + width + d] + of(r)[0] * away * away;
    }
  }
  rows = merged_rows = static_cast<int64_t>(count);
}

void MergeSums(int64_t& rows, std::vector<double>& sums) {
  collective::Group* const group = collective::Current();
  if (group == nullptr) return;
  std::vector<double> own{static_cast<double>(rows)};
  own.insert(own.end(), sums.begin(), sums.end());
  const std::vector<double> all = group->AllGather(own);
  double count = 0;
  std::ranges::fill(sums, 0);
  for (int64_t r = 0; r < group->size(); ++r) {
    const double* const of = all.data() + static_cast<size_t>(r) * own.size();
    count += of[0];
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += of[1 + i];
  }
  rows = static_cast<int64_t>(count);
}

int64_t MergedRows() { return merged_rows; }

namespace {

// The result of normalising the first `rows` rows of [N, D]. The other rows are 0, and pass no gradient.
struct NormOutput {
  Tensor y;             // [N, D]
  Tensor mean, invstd;  // [D]: the moments by which the rows were normalised
};
NormOutput NormalizeRows(const Tensor& x_in, int64_t rows, const Tensor& weight, const Tensor& bias,
                         const Tensor& running_mean, const Tensor& running_var, const BatchNormOptions& norm,
                         bool relu) {
  const Tensor x = x_in.contiguous();
  const int64_t width = x.size(1);
  NormOutput to{at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
  const RowChunks chunks(rows, 2 * width, kMostChunks);
  const int64_t grain = ChunkGrain(chunks, rows * width, kParallelNormValues);
  const Tensor moments = SumsOfChunks(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch norm", [&] {
    using T = scalar_t;
    const T* const from = Read<T>(x);
    T *const of = Write<T>(moments), *const y = Write<T>(to.y);
    ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
      T* const to_chunk = of + 2 * c * width;
      ColumnMoments<T>(from + begin * width, size, width, to_chunk, to_chunk + width);
    });
    const Tensor affine = CombineMoments<T, double>(chunks, rows, moments, weight, bias, running_mean, running_var,
                                                    norm, to.mean, to.invstd);
    const T* const scale = Read<T>(affine);
    ForChunks(chunks, grain, [&](int64_t, int64_t begin, int64_t size) {
      ScaleShift<T>(from + begin * width, size, width, scale, scale + width, relu, y + begin * width);
    });
    ClearRows<T>(to.y, rows);
  });
  return to;
}

struct NormGradients {
  Tensor x;             // [N, D]
  Tensor weight, bias;  // [D]
};
// y: the output if ReLU followed the norm, else undefined.
NormGradients NormalizeRowsBackward(const Tensor& grad_in, const Tensor& x_in, const Tensor& y, int64_t rows,
                                    const Tensor& weight, const Tensor& mean, const Tensor& invstd) {
  const Tensor grad = grad_in.contiguous(), x = x_in.contiguous();
  const int64_t width = x.size(1);
  NormGradients to{at::empty_like(x), at::empty_like(weight), at::empty_like(weight)};
  const RowChunks chunks(rows, 2 * width, kMostChunks);
  const int64_t grain = ChunkGrain(chunks, rows * width, kParallelNormValues);
  const Tensor sums = SumsOfChunks(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "batch norm", [&] {
    using T = scalar_t;
    const T *const g = Read<T>(grad), *const z = Read<T>(x), *const out = DataOrNull<T>(y),
                   *const center = Read<T>(mean);
    T *const of = Write<T>(sums), *const gx = Write<T>(to.x);
    const auto out_at = [&](int64_t at) { return out == nullptr ? nullptr : out + at; };
    ForChunks(chunks, grain, [&](int64_t c, int64_t begin, int64_t size) {
      const int64_t at = begin * width;
      NormGradientSums<T>(g + at, out_at(at), z + at, center, T(1), size, width, of + 2 * c * width,
                          of + 2 * c * width + width);
    });
    const Tensor combined = CombineNormSums<T, double>(chunks, rows, sums, weight, mean, invstd, to.weight, to.bias);
    const T* const means = Read<T>(combined);
    ForChunks(chunks, grain, [&](int64_t, int64_t begin, int64_t size) {
      const int64_t at = begin * width;
      NormGradient<T>(g + at, out_at(at), z + at, center, T(1), means + 2 * width, means, means + width, size, width,
                      gx + at);
    });
    ClearRows<T>(to.x, rows);
  });
  return to;
}

std::tuple<Tensor, Tensor, Tensor> RowNormForwardCpu(const Tensor& x, const Tensor& weight_in, const Tensor& bias_in,
                                                     Tensor& running_mean, Tensor& running_var, double momentum,
                                                     double eps, bool relu) {
  TORCH_CHECK(x.dim() == 2 && x.is_floating_point(), "row_norm: x must be a floating [N, D], not ", x.toString(),
              x.sizes());
  const Tensor weight = weight_in.contiguous(), bias = bias_in.contiguous();
  for (const Tensor& t : {weight, bias, running_mean, running_var}) {
    TORCH_CHECK(t.numel() == x.size(1) && t.scalar_type() == x.scalar_type() && t.is_contiguous(),
                "row_norm: weight, bias and running statistics must be [", x.size(1),
                "] of x's type, and the statistics contiguous, not ", t.toString(), t.sizes());
  }
  TORCH_CHECK_VALUE(x.size(0) != 1 || collective::IsShared(),
                    "Expected more than 1 value per channel when training, got input size ", x.sizes());
  NormOutput made = NormalizeRows(x, x.size(0), weight, bias, running_mean, running_var, {momentum, eps}, relu);
  return {made.y, made.mean, made.invstd};
}

std::tuple<Tensor, Tensor, Tensor> RowNormBackwardCpu(const Tensor& grad, const Tensor& x, const OptionalTensor& y,
                                                      const Tensor& weight, const Tensor& mean, const Tensor& invstd) {
  NormGradients g = NormalizeRowsBackward(grad, x, y.value_or(Tensor()), x.size(0), weight.contiguous(), mean, invstd);
  return {g.x, g.weight, g.bias};
}

constexpr Operator<RowNormForwardCpu> kRowNormForward{
    "row_norm_forward(Tensor x, Tensor weight, Tensor bias, Tensor(a!) running_mean, Tensor(b!) running_var, "
    "float momentum, float eps, bool relu) -> (Tensor, Tensor, Tensor)"};
constexpr Operator<RowNormBackwardCpu> kRowNormBackward{
    "row_norm_backward(Tensor grad, Tensor x, Tensor? y, Tensor weight, Tensor mean, Tensor invstd) "
    "-> (Tensor, Tensor, Tensor)"};

class RowNormFunction : public torch::autograd::Function<RowNormFunction> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, Tensor running_mean, Tensor running_var, double momentum, double eps,
                        bool relu) {
    auto [y, mean, invstd] = kRowNormForward(x, weight, bias, running_mean, running_var, momentum, eps, relu);
    context->save_for_backward({x, relu ? y : Tensor(), weight, mean, invstd});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    const auto s = context->get_saved_variables();
    auto [gx, gw, gb] = kRowNormBackward(collective::OwnGradient(grads[0]), s[0], IfDefined(s[1]), s[2], s[3], s[4]);
    return {gx, gw, gb, Tensor(), Tensor(), Tensor(), Tensor(), Tensor()};
  }
};

Tensor RowNormOfProgram(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& running_mean,
                        Tensor& running_var, double momentum, double eps, bool relu) {
  return RowBatchNorm(x, weight, bias, running_mean, running_var, {momentum, eps}, relu);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kRowNormForward.Register(library);
  kRowNormBackward.Register(library);
  library.def(
      "row_norm(Tensor x, Tensor weight, Tensor bias, Tensor(a!) running_mean, Tensor(b!) running_var, "
      "float momentum, float eps, bool relu) -> Tensor");
  library.impl("row_norm", torch::dispatch(c10::DispatchKey::CompositeImplicitAutograd, RowNormOfProgram));
}

bool RunsRowNorm(c10::Device device) { return device.is_cpu(); }

Tensor RowBatchNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, Tensor& running_mean,
                    Tensor& running_var, const BatchNormOptions& norm, bool relu) {
  return RowNormFunction::apply(x, weight, bias, running_mean, running_var, norm.momentum, norm.eps, relu);
}

namespace {

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

// Returns a mask [N, 1] bool: true for real rows. Serves devices whose operators cannot read real_rows on the host.
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

// The norm that ran before on this thread has counted the rows of all ranks.
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
