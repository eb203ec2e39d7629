#include "nn/loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "nn/gpu/operators.h"
#include "nn/kernels/class_loss.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Works without the graphs of sgn, log_softmax and log_sigmoid on MPS. At 0 the gradient of the magnitude is 0.
Tensor Magnitude(const Tensor& x) { return ReluRows(x) + ReluRows(-x); }
Tensor ShapeFreeElementwise(spec::Loss loss, const Tensor& prediction, const Tensor& labels) {
  switch (loss) {
    case spec::Loss::kL1:
      return Magnitude(prediction - labels);
    case spec::Loss::kMse: {
      const Tensor difference = prediction - labels;
      return difference * difference;
    }
    case spec::Loss::kCrossEntropy: {
      const Tensor shifted = prediction - prediction.detach().amax(1, /*keepdim=*/true);
      return shifted.exp().sum(1, /*keepdim=*/true).log() - shifted.gather(1, labels.to(at::kLong));
    }
    case spec::Loss::kBce: {
      // log(1 + e^x) as log-sum-exp, whose gradient is the sigmoid at 0 too: that of max(x, 0) + log(1 + e^-|x|) is
      // not.
      const Tensor top = ReluRows(prediction.detach());
      return top + ((prediction - top).exp() + (-top).exp()).log() - prediction * labels;
    }
  }
  TORCH_CHECK(false, "ComputeLoss: no such loss: ", static_cast<int>(loss));
}

// The loss of every label by itself, [G, T]. Both tensors are 0 where the label is missing.
Tensor Elementwise(spec::Loss loss, const Tensor& prediction, const Tensor& labels) {
  if (IsShapeFree(prediction)) return ShapeFreeElementwise(loss, prediction, labels);
  switch (loss) {
    case spec::Loss::kL1:
      return (prediction - labels).abs();
    case spec::Loss::kMse:
      return (prediction - labels).square();
    case spec::Loss::kCrossEntropy:
      return -at::log_softmax(prediction, 1).gather(1, labels.to(at::kLong));
    case spec::Loss::kBce:
      return at::binary_cross_entropy_with_logits(prediction, labels, {}, {}, at::Reduction::None);
  }
  TORCH_CHECK(false, "ComputeLoss: no such loss: ", static_cast<int>(loss));
}

}  // namespace

LossTerms ComputeLoss(spec::Loss loss, const Tensor& prediction, const Tensor& labels, const Tensor& class_weights) {
  const bool has_classes = spec::HasClasses(loss);
  TORCH_CHECK(has_classes || !class_weights.defined(), "ComputeLoss: ", spec::kLossNames.Name(loss),
              " has no class weights");
  const bool fused = loss == spec::Loss::kBce ? IsFused(prediction) : HasColumnKernels(prediction, prediction.size(0));
  return fused ? MaskedLoss(loss, prediction, labels, class_weights)
               : ComputeLossPlain(loss, prediction, labels, class_weights);
}

LossTerms ComputeLossPlain(spec::Loss loss, const Tensor& prediction, const Tensor& labels,
                           const Tensor& class_weights) {
  const Tensor present = labels.eq(labels);
  const Tensor zero = at::zeros({}, prediction.options());
  // `where` before and after: neither a NaN label nor a NaN prediction of a padding row reaches the sum or the
  // gradient.
  const Tensor known = at::where(present, labels.to(prediction.scalar_type()), zero);
  Tensor terms = at::where(present, Elementwise(loss, at::where(present, prediction, zero), known), zero);
  Tensor count = present.sum().to(prediction.scalar_type());
  if (class_weights.defined()) {
    const Tensor of_label =
        SelectRows(class_weights.to(prediction.scalar_type()), known.to(at::kLong).flatten()).view(known.sizes());
    terms = terms * of_label;
    count = at::where(present, of_label, zero).sum();
  }
  const Tensor sum = terms.sum();
  // A sum of weights may lie below 1; where it is 0 the sum of the terms is 0 too.
  return {sum / count.clamp_min(std::numeric_limits<float>::min()), sum.detach(), count};
}

namespace {

// Values whose loss is one sum, which an L1 cache holds with their gradients.
constexpr int64_t kLossChunk = 2048;
// Chunks from which on several threads share them. At half of these, 50 us of work, two threads were as fast as one:
// `bench/run parallel --filter losses`.
constexpr int64_t kLossGrain = 16;

// mean, sum, count and the mean's gradient.
using LossResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// The loss of rows of `width` values each. of_rows(begin, end, divisor, gradient) returns the sum of the losses of
// those rows and writes their gradients over the divisor. Chunks have as many rows whatever padding adds behind them.
template <class T, class OfRows>
LossResult LossOf(const Tensor& prediction, double count, int64_t width, const OfRows& of_rows) {
  Tensor mean = at::empty({}, prediction.options()), sum = at::empty_like(mean), counted = at::empty_like(mean);
  Tensor gradient = at::empty_like(prediction);
  T* const to = gradient.mutable_data_ptr<T>();
  // A sum of weights may lie below 1; where it is 0 the sum of the losses is 0 too.
  const T divisor = std::max(static_cast<T>(count), static_cast<T>(std::numeric_limits<float>::min()));
  const int64_t rows = prediction.numel() / std::max<int64_t>(1, width);
  const int64_t chunk = std::max<int64_t>(1, kLossChunk / std::max<int64_t>(1, width));
  std::vector<double> parts(static_cast<size_t>((rows + chunk - 1) / chunk));
  ParallelFor(0, std::ssize(parts), kLossGrain, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) {
      parts[static_cast<size_t>(c)] = of_rows(c * chunk, std::min(rows, (c + 1) * chunk), divisor, to);
    }
  });
  const double total = std::accumulate(parts.begin(), parts.end(), 0.0);
  *mean.mutable_data_ptr<T>() = static_cast<T>(total / static_cast<double>(divisor));
  *sum.mutable_data_ptr<T>() = static_cast<T>(total);
  *counted.mutable_data_ptr<T>() = static_cast<T>(count);
  return {mean, sum, counted, gradient};
}

// Returns how many labels there are, or the sum of their classes' weights. With classes > 0 every label must be one of
// them.
template <class T>
double CountLabels(const char* op, const Tensor& labels, const T* weights, int64_t classes) {
  const T* const label = labels.const_data_ptr<T>();
  int64_t present = 0;
  double weight = 0;
  for (int64_t i = 0; i < labels.numel(); ++i) {
    if (std::isnan(label[i])) continue;
    TORCH_CHECK(classes == 0 || (label[i] >= T(0) && label[i] < static_cast<T>(classes)), op, ": label ", label[i],
                " is none of the classes 0..", classes - 1);
    ++present;
    if (weights != nullptr) weight += static_cast<double>(weights[static_cast<int64_t>(label[i])]);
  }
  return weights == nullptr ? static_cast<double>(present) : weight;
}

// The weights as `like` is typed; undefined where there are none.
Tensor WeightsAs(const char* op, const OptionalTensor& weights, int64_t classes, const Tensor& like) {
  if (!weights) return {};
  TORCH_CHECK(weights->numel() == classes, op, ": ", weights->numel(), " class weights for ", classes, " classes");
  return weights->to(like.scalar_type()).contiguous();
}

LossResult RegressionLossCpu(const Tensor& prediction_in, const Tensor& labels_in, bool square) {
  TORCH_CHECK(prediction_in.sizes() == labels_in.sizes(), "regression_loss: predictions ", prediction_in.sizes(),
              " and labels ", labels_in.sizes());
  const Tensor prediction = prediction_in.contiguous(), labels = labels_in.to(prediction.scalar_type()).contiguous();
  LossResult out;
  AT_DISPATCH_FLOATING_TYPES(prediction.scalar_type(), "regression_loss", [&] {
    const auto* const p = prediction.const_data_ptr<scalar_t>();
    const auto* const y = labels.const_data_ptr<scalar_t>();
    const double count = CountLabels<scalar_t>("regression_loss", labels, nullptr, 0);
    const auto of_values = [&](int64_t begin, int64_t end, scalar_t divisor, scalar_t* gradient) {
      double total = 0;
      for (int64_t i = begin; i < end; ++i) {
        const scalar_t difference = y[i] == y[i] ? p[i] - y[i] : scalar_t(0);
        total += square ? difference * difference : std::abs(difference);
        gradient[i] = (square ? 2 * difference : scalar_t((difference > 0) - (difference < 0))) / divisor;
      }
      return total;
    };
    out = LossOf<scalar_t>(prediction, count, 1, of_values);
  });
  return out;
}

LossResult CrossEntropyLossCpu(const Tensor& logits_in, const Tensor& labels_in, const OptionalTensor& weights_in) {
  constexpr const char* kName = "cross_entropy_loss";
  TORCH_CHECK(logits_in.dim() == 2 && labels_in.numel() == logits_in.size(0), kName, ": logits ", logits_in.sizes(),
              " and labels ", labels_in.sizes(), " must be [G, classes] and [G, 1]");
  const int64_t classes = logits_in.size(1);
  TORCH_CHECK(classes > 0, kName, ": logits ", logits_in.sizes(), " have no class");
  const Tensor logits = logits_in.contiguous(), labels = labels_in.to(logits.scalar_type()).contiguous();
  const Tensor class_weights = WeightsAs(kName, weights_in, classes, logits);
  LossResult out;
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), kName, [&] {
    const auto* const x = logits.const_data_ptr<scalar_t>();
    const auto* const y = labels.const_data_ptr<scalar_t>();
    const auto* const weights = DataOrNull<scalar_t>(class_weights);
    const auto of_rows = [&](int64_t begin, int64_t end, scalar_t divisor, scalar_t* gradient) {
      return CrossEntropyRows<scalar_t>(x + begin * classes, y + begin, weights, end - begin, classes, 1 / divisor,
                                        gradient + begin * classes);
    };
    out = LossOf<scalar_t>(logits, CountLabels<scalar_t>(kName, labels, weights, classes), classes, of_rows);
  });
  return out;
}

LossResult BinaryCrossEntropyLossCpu(const Tensor& logits_in, const Tensor& labels_in,
                                     const OptionalTensor& weights_in) {
  constexpr const char* kName = "binary_cross_entropy_loss";
  TORCH_CHECK(logits_in.sizes() == labels_in.sizes(), kName, ": logits ", logits_in.sizes(), " and labels ",
              labels_in.sizes());
  const Tensor logits = logits_in.contiguous(), labels = labels_in.to(logits.scalar_type()).contiguous();
  const Tensor class_weights = WeightsAs(kName, weights_in, 2, logits);
  LossResult out;
  AT_DISPATCH_FLOATING_TYPES(logits.scalar_type(), kName, [&] {
    const auto* const x = logits.const_data_ptr<scalar_t>();
    const auto* const y = labels.const_data_ptr<scalar_t>();
    const auto* const weights = DataOrNull<scalar_t>(class_weights);
    const auto of_values = [&](int64_t begin, int64_t end, scalar_t divisor, scalar_t* gradient) {
      return BinaryCrossEntropy<scalar_t>(x + begin, y + begin, weights, end - begin, 1 / divisor, gradient + begin);
    };
    out = LossOf<scalar_t>(logits, CountLabels<scalar_t>(kName, labels, weights, 2), 1, of_values);
  });
  return out;
}

constexpr Operator<RegressionLossCpu> kRegressionLoss{
    "regression_loss(Tensor prediction, Tensor labels, bool square) -> (Tensor, Tensor, Tensor, Tensor)"};
constexpr Operator<CrossEntropyLossCpu> kCrossEntropyLoss{
    "cross_entropy_loss(Tensor logits, Tensor labels, Tensor? class_weights) -> (Tensor, Tensor, Tensor, Tensor)"};
constexpr Operator<BinaryCrossEntropyLossCpu> kBinaryCrossEntropyLoss{
    "binary_cross_entropy_loss(Tensor logits, Tensor labels, Tensor? class_weights) "
    "-> (Tensor, Tensor, Tensor, Tensor)"};

LossResult CallLoss(spec::Loss loss, const Tensor& prediction, const Tensor& labels,
                    const OptionalTensor& class_weights) {
  switch (loss) {
    case spec::Loss::kL1:
    case spec::Loss::kMse:
      return kRegressionLoss(prediction, labels, loss == spec::Loss::kMse);
    case spec::Loss::kCrossEntropy:
      return kCrossEntropyLoss(prediction, labels, class_weights);
    case spec::Loss::kBce:
      return kBinaryCrossEntropyLoss(prediction, labels, class_weights);
  }
  TORCH_CHECK(false, "MaskedLoss: no such loss: ", static_cast<int>(loss));
}

class MaskedLossFunction : public torch::autograd::Function<MaskedLossFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& prediction,
                                                const Tensor& labels, const OptionalTensor& class_weights,
                                                spec::Loss loss) {
    auto [mean, sum, count, gradient] = CallLoss(loss, prediction, labels, class_weights);
    context->save_for_backward({gradient});
    context->mark_non_differentiable({sum, count});
    return {mean, sum, count};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {context->get_saved_variables()[0] * grads[0], Tensor(), Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kRegressionLoss.Register(library, nullptr, gpu::RegressionLoss);
  kCrossEntropyLoss.Register(library, nullptr, gpu::CrossEntropyLoss);
  kBinaryCrossEntropyLoss.Register(library);
}

LossTerms MaskedLoss(spec::Loss loss, const Tensor& prediction, const Tensor& labels, const Tensor& class_weights) {
  const auto terms = MaskedLossFunction::apply(prediction, labels, IfDefined(class_weights), loss);
  return {terms[0], terms[1], terms[2]};
}

}  // namespace permafrost::nn
