#include "nn/loss.h"

#include <ATen/ATen.h>

#include <limits>

#include "nn/ops/lowering.h"
#include "nn/ops/masked_loss.h"

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
  return IsFused(prediction) ? MaskedLoss(loss, prediction, labels, class_weights)
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

}  // namespace permafrost::nn
