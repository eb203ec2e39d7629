#include "nn/loss.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>
#include <vector>

#include "base/buffer.h"
#include "nn/gpu/operators.h"
#include "nn/kernels/losses.h"
#include "nn/ops/chunks.h"
#include "nn/ops/lowering.h"
#include "nn/ops/operator.h"

namespace permafrost::nn {
namespace {

using at::Tensor;

// Magnitude and ShapeFreeElementwise avoid the graphs that sgn, log_softmax and log_sigmoid compile on MPS. At 0 the
// gradient of Magnitude is 0.
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
      // Computes log(1 + e^x) as a log-sum-exp, whose gradient equals the sigmoid also at 0. At 0 the gradient of
      // max(x, 0) + log(1 + e^-|x|) differs from the sigmoid.
      const Tensor top = ReluRows(prediction.detach());
      return top + ((prediction - top).exp() + (-top).exp()).log() - prediction * labels;
    }
  }
  TORCH_CHECK(false, "ComputeLoss: no such loss: ", static_cast<int>(loss));
}

// Returns the loss of each label, [G, T]. `prediction` and `labels` are 0 where the label is missing.
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
  // `where` is applied before and after the loss. So neither a NaN label nor a NaN prediction in a padding row
  // reaches the sum or the gradient.
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
  // `count` may be a sum of weights below 1, so the divisor's lower limit is the least normal float. If `count` is 0,
  // the sum of the terms is 0 too.
  return {sum / count.clamp_min(std::numeric_limits<float>::min()), sum.detach(), count};
}

namespace {

// The number of values whose loss is computed as one sum. An L1 cache holds them with their gradients.
constexpr int64_t kLossChunk = 2048;
// If there are at least this many chunks, several threads share the work. At half as many chunks (50 us of work) two
// threads were as fast as one: `bench/run parallel --filter losses`.
constexpr int64_t kLossGrain = 16;

// The mean, the sum, the count, and the gradient of the mean.
using LossResult = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// Computes the loss of rows with `width` values each. of_rows(begin, end, divisor, gradient) returns the sum of the
// losses of rows [begin, end). It writes the gradients of these rows, divided by `divisor`. The size of a chunk does
// not depend on the padding behind the rows.
template <class T, class OfRows>
LossResult LossOf(const Tensor& prediction, double count, int64_t width, const OfRows& of_rows) {
  Tensor mean = at::empty({}, prediction.options()), sum = at::empty_like(mean), counted = at::empty_like(mean);
  Tensor gradient = at::empty_like(prediction);
  T* const to = gradient.mutable_data_ptr<T>();
  // `count` may be a sum of weights below 1, so the divisor's lower limit is the least normal float. If `count` is 0,
  // the sum of the losses is 0 too.
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

// Returns the number of present labels or, with `weights`, the sum of the weights of their classes. Errors: if
// classes > 0, a label that is not one of the classes.
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

// Returns the weights, converted to the type of `like`; undefined if there are none.
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

constexpr double kLikelihoodEps = 1e-15;  // same as in PyG
// A thread should get at least this many walks.
constexpr int64_t kWalkGrain = 16;

WalkShape WalkShapeOf(const char* name, const Tensor& table, const Tensor& walks, int64_t context) {
  TORCH_CHECK(table.dim() == 2 && table.is_contiguous() && table.is_floating_point(), name,
              ": the table must be a contiguous floating [N, D], not ", table.toString(), table.sizes());
  TORCH_CHECK(walks.dim() == 2 && walks.is_contiguous() && walks.scalar_type() == at::kLong, name,
              ": walks must be a contiguous [W, length] int64, not ", walks.toString(), walks.sizes());
  TORCH_CHECK(context >= 2 && context <= walks.size(1), name, ": a context of ", context, " in walks of ",
              walks.size(1));
  return {.length = walks.size(1), .context = context, .dimension = table.size(1)};
}

void CheckLayout(const Tensor& walks, const Tensor& seeds, int64_t per_seed, int64_t negatives) {
  TORCH_CHECK(per_seed >= 1 && negatives >= 1 && walks.size(0) % (per_seed * (1 + negatives)) == 0,
              "skip_gram: ", walks.size(0), " walks are not ", per_seed, " and ", negatives,
              " times as many negatives of each seed");
  TORCH_CHECK(seeds.numel() == 1 && seeds.scalar_type() == at::kLong, "skip_gram: seeds must be one int64");
}

// Walks of one kind: `real` walks from `begin` on, then padding up to `end`.
struct WalkKind {
  int64_t begin, end, real;
};

// Prefetches the rows of the next walk, which are scattered over the table.
template <class T>
void AskFor(const WalkShape& shape, const T* table, const int64_t* walk) {
  for (int64_t i = 0; i < shape.length; ++i) {
    PrefetchLines(table + walk[i] * shape.dimension, static_cast<uint64_t>(shape.dimension) * sizeof(T));
  }
}

std::tuple<Tensor, Tensor, Tensor> SkipGramCpu(const Tensor& table, const Tensor& walks, const Tensor& seeds,
                                               int64_t context, int64_t per_seed, int64_t negatives) {
  const WalkShape shape = WalkShapeOf("skip_gram", table, walks, context);
  CheckLayout(walks, seeds, per_seed, negatives);
  const int64_t all = walks.size(0), real = *seeds.const_data_ptr<int64_t>(), positives = all / (1 + negatives);
  TORCH_CHECK(real >= 1 && real * per_seed <= positives, "skip_gram: ", real, " seeds in a batch of ",
              positives / per_seed);
  const WalkKind kinds[] = {{0, positives, real * per_seed}, {positives, all, real * per_seed * negatives}};
  Tensor parts = at::empty({all * shape.length, shape.dimension}, table.options().requires_grad(false));
  std::vector<double> losses(static_cast<size_t>(all));
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "skip_gram", [&] {
    const scalar_t* const values = table.const_data_ptr<scalar_t>();
    const int64_t* const nodes = walks.const_data_ptr<int64_t>();
    scalar_t* const gradients = parts.mutable_data_ptr<scalar_t>();
    ParallelFor(0, all, kWalkGrain, [&](int64_t begin, int64_t end) {
      std::vector<scalar_t> scores(static_cast<size_t>(shape.pairs()));
      for (int64_t w = begin; w < end; ++w) {
        const bool negative = w >= positives;
        const WalkKind& kind = kinds[negative ? 1 : 0];
        const int64_t* const walk = nodes + w * shape.length;
        scalar_t* const to = gradients + w * shape.length * shape.dimension;
        if (w - kind.begin >= kind.real) {
          std::fill_n(to, shape.length * shape.dimension, scalar_t{0});
          continue;
        }
        if (w + 1 < end) AskFor(shape, values, walk + shape.length);
        ScoreWalk(shape, values, walk, scores.data());
        losses[static_cast<size_t>(w)] = LossOfPairs(negative, shape.pairs(), scores.data());
        const double scale = 1 / (static_cast<double>(kind.real) * static_cast<double>(shape.pairs()));
        GradientOfWalk(shape, values, walk, scores.data(), static_cast<scalar_t>(scale), to);
      }
    });
  });
  double loss = 0;
  for (const WalkKind& kind : kinds) {
    double sum = 0;
    for (int64_t w = kind.begin; w < kind.begin + kind.real; ++w) sum += losses[static_cast<size_t>(w)];
    loss += sum / (static_cast<double>(kind.real) * static_cast<double>(shape.pairs()));
  }
  const auto number = table.options().dtype(at::kFloat).requires_grad(false);
  Tensor sum = at::empty({}, number), count = at::empty({}, number);
  *sum.mutable_data_ptr<float>() = static_cast<float>(loss * static_cast<double>(real));
  *count.mutable_data_ptr<float>() = static_cast<float>(real);
  return {sum, count, parts};
}

// Returns a mask [L, L]: element (j, i) is true if i > j and nodes j and i of a walk form a pair.
Tensor BandOf(int64_t length, int64_t context, c10::Device device) {
  const Tensor places = at::arange(length, at::TensorOptions().dtype(at::kLong).device(device));
  const Tensor first = places.view({length, 1}), second = places.view({1, length});
  return second.gt(first).logical_and(second.lt(first + context)).logical_and(first.le(length - context));
}

std::tuple<Tensor, Tensor, Tensor> SkipGramPlain(const Tensor& table, const Tensor& walks, const Tensor& seeds,
                                                 int64_t context, int64_t per_seed, int64_t negatives) {
  CheckLayout(walks, seeds, per_seed, negatives);
  const int64_t all = walks.size(0), length = walks.size(1), width = table.size(1), positives = all / (1 + negatives);
  const int64_t pairs = WalkShapeOf("skip_gram", table, walks, context).pairs();
  const Tensor rows = table.index_select(0, walks.reshape({-1})).view({all, length, width});
  const Tensor sigmoid = rows.bmm(rows.transpose(1, 2)).sigmoid(), other = sigmoid.neg().add(1);
  const Tensor number = at::arange(all, walks.options());
  const Tensor negative = number.ge(positives);
  const Tensor seed =
      at::where(negative, (number - positives).floor_divide(per_seed * negatives), number.floor_divide(per_seed));
  const Tensor likelihood = at::where(negative.view({all, 1, 1}), other, sigmoid).add(kLikelihoodEps);
  // The weight of a pair: 1 / the number of pairs of the walk's kind; 0 in padding.
  const Tensor count = seeds.reshape({}).to(table.scalar_type());
  const Tensor each = count * static_cast<double>(per_seed * pairs);
  const Tensor weight = at::where(negative, (each * static_cast<double>(negatives)).reciprocal(), each.reciprocal()) *
                        seed.lt(seeds).to(table.scalar_type());
  const Tensor counted =
      BandOf(length, context, table.device()).to(table.scalar_type()).unsqueeze(0) * weight.view({all, 1, 1});
  const Tensor sum = likelihood.log().neg().mul(counted).sum() * count;
  const Tensor slope = sigmoid * other / likelihood;
  const Tensor derivative = at::where(negative.view({all, 1, 1}), slope, slope.neg()) * counted;
  const Tensor parts = (derivative + derivative.transpose(1, 2)).bmm(rows).view({all * length, width});
  return {sum, count, parts};
}

Tensor WalkScoresCpu(const Tensor& table, const Tensor& walks, int64_t context) {
  const WalkShape shape = WalkShapeOf("walk_scores", table, walks, context);
  Tensor out = at::empty({walks.size(0), shape.pairs()}, table.options().requires_grad(false));
  AT_DISPATCH_FLOATING_TYPES(table.scalar_type(), "walk_scores", [&] {
    const scalar_t* const values = table.const_data_ptr<scalar_t>();
    const int64_t* const nodes = walks.const_data_ptr<int64_t>();
    scalar_t* const to = out.mutable_data_ptr<scalar_t>();
    ParallelFor(0, walks.size(0), kWalkGrain, [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w) {
        ScoreWalk(shape, values, nodes + w * shape.length, to + w * shape.pairs());
      }
    });
  });
  return out;
}

Tensor WalkScoresPlain(const Tensor& table, const Tensor& walks, int64_t context) {
  const int64_t all = walks.size(0), length = walks.size(1), windows = length - context + 1;
  const Tensor rows = table.index_select(0, walks.reshape({-1})).view({all, length, table.size(1)});
  const Tensor first = at::arange(windows, walks.options()).view({windows, 1});
  const Tensor second = first + at::arange(1, context, walks.options()).view({1, context - 1});
  const Tensor places = (first * length + second).reshape({-1});
  return rows.bmm(rows.transpose(1, 2)).view({all, length * length}).index_select(1, places);
}

constexpr Operator<SkipGramCpu> kSkipGram{
    "skip_gram(Tensor table, Tensor walks, Tensor seeds, int context, int per_seed, int negatives) -> (Tensor, Tensor, "
    "Tensor)"};
constexpr Operator<WalkScoresCpu> kWalkScores{"walk_scores(Tensor table, Tensor walks, int context) -> Tensor"};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  kRegressionLoss.Register(library, nullptr, gpu::RegressionLoss);
  kCrossEntropyLoss.Register(library, nullptr, gpu::CrossEntropyLoss);
  kBinaryCrossEntropyLoss.Register(library);
  kSkipGram.Register(library);
  kWalkScores.Register(library);
}

LossTerms MaskedLoss(spec::Loss loss, const Tensor& prediction, const Tensor& labels, const Tensor& class_weights) {
  const auto terms = MaskedLossFunction::apply(prediction, labels, IfDefined(class_weights), loss);
  return {terms[0], terms[1], terms[2]};
}

SkipGramStep SkipGram(const Tensor& table, const Tensor& walks, const Tensor& seeds, const WalkLayout& layout) {
  const at::NoGradGuard no_grad;
  const auto [sum, count, parts] =
      IsFused(table) ? kSkipGram(table, walks, seeds, layout.context, layout.per_seed, layout.negatives)
                     : SkipGramPlain(table, walks, seeds, layout.context, layout.per_seed, layout.negatives);
  return {.terms = {.mean = sum / count, .sum = sum, .count = count}, .parts = parts};
}

double MeanWalkLoss(const Tensor& scores, bool negative) {
  // Sums sequentially, so that the result is the same for any number of threads.
  Tensor host = scores.to(at::kCPU).contiguous().clone();
  double loss = 0;
  AT_DISPATCH_FLOATING_TYPES(host.scalar_type(), "walk_loss",
                             [&] { loss = LossOfPairs(negative, host.numel(), host.mutable_data_ptr<scalar_t>()); });
  return loss / static_cast<double>(host.numel());
}

Tensor WalkScores(const Tensor& table, const Tensor& walks, int64_t context) {
  const at::NoGradGuard no_grad;
  return IsFused(table) ? kWalkScores(table, walks, context) : WalkScoresPlain(table, walks, context);
}

}  // namespace permafrost::nn
