#include "nn/ops/regression_loss.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace permafrost::nn {
namespace {

using at::Tensor;

// mean, sum, count and the mean's gradient.
std::tuple<Tensor, Tensor, Tensor, Tensor> RegressionLossForwardCpu(const Tensor& prediction_in,
                                                                    const Tensor& labels_in, bool square) {
  TORCH_CHECK(prediction_in.sizes() == labels_in.sizes(), "regression_loss: predictions ", prediction_in.sizes(),
              " and labels ", labels_in.sizes());
  const Tensor prediction = prediction_in.contiguous(), labels = labels_in.to(prediction.scalar_type()).contiguous();
  Tensor mean = at::empty({}, prediction.options()), sum = at::empty_like(mean), count = at::empty_like(mean);
  Tensor gradient = at::empty_like(prediction);
  AT_DISPATCH_FLOATING_TYPES(prediction.scalar_type(), "regression_loss", [&] {
    const scalar_t* const p = prediction.const_data_ptr<scalar_t>();
    const scalar_t* const y = labels.const_data_ptr<scalar_t>();
    scalar_t* const g = gradient.mutable_data_ptr<scalar_t>();
    const int64_t size = prediction.numel();
    double total = 0;
    int64_t present = 0;
    for (int64_t i = 0; i < size; ++i) {
      const bool is_present = y[i] == y[i];
      const scalar_t difference = is_present ? p[i] - y[i] : scalar_t(0);
      present += is_present;
      total += square ? difference * difference : std::abs(difference);
      g[i] = square ? 2 * difference : scalar_t((difference > 0) - (difference < 0));
    }
    const auto n = static_cast<scalar_t>(present);
    const scalar_t divisor = std::max(n, static_cast<scalar_t>(std::numeric_limits<float>::min()));
    for (int64_t i = 0; i < size; ++i) g[i] /= divisor;
    *mean.mutable_data_ptr<scalar_t>() = static_cast<scalar_t>(total) / divisor;
    *sum.mutable_data_ptr<scalar_t>() = static_cast<scalar_t>(total);
    *count.mutable_data_ptr<scalar_t>() = n;
  });
  return {mean, sum, count, gradient};
}

constexpr const char* kRegressionLossName = "permafrost::regression_loss";

class RegressionLossFunction : public torch::autograd::Function<RegressionLossFunction> {
 public:
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context, const Tensor& prediction,
                                                const Tensor& labels, bool square) {
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow(kRegressionLossName, "")
                               .typed<decltype(RegressionLossForwardCpu)>();
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [mean, sum, count, gradient] = op.call(prediction, labels, square);
    context->save_for_backward({gradient});
    context->mark_non_differentiable({sum, count});
    return {mean, sum, count};
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& grads) {
    return {context->get_saved_variables()[0] * grads[0], Tensor(), Tensor()};
  }
};

}  // namespace

TORCH_LIBRARY_FRAGMENT(permafrost, library) {
  library.def("regression_loss(Tensor prediction, Tensor labels, bool square) -> (Tensor, Tensor, Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(permafrost, CPU, library) { library.impl("regression_loss", RegressionLossForwardCpu); }

LossTerms RegressionLoss(Loss loss, const Tensor& prediction, const Tensor& labels) {
  const auto terms = RegressionLossFunction::apply(prediction, labels, loss == Loss::kMse);
  return {terms[0], terms[1], terms[2]};
}

}  // namespace permafrost::nn
