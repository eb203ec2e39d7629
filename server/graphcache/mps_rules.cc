#include "graphcache/mps_rules.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace permafrost::graphcache {
namespace {

enum class Adds { kNothing, kUntil2_15, kAnEntry, kForEachGradient, kUnlessPlain };

struct Rule {
  std::string_view op;
  Adds adds;
};

// Sorted by name.
constexpr auto kMpsRules = [] {
  using enum Adds;
  std::array rules{
      // Products stay on MPSGraph (pytorch#186541). Their key is the types and the sizes of both factors.
      Rule{"aten::addmm", kAnEntry},
      Rule{"aten::bmm", kAnEntry},
      Rule{"aten::linear", kUnlessPlain},
      Rule{"aten::linear_backward", kForEachGradient},
      Rule{"aten::mm", kAnEntry},
      // Losses, activations and norms.
      Rule{"aten::_log_softmax", kAnEntry},
      Rule{"aten::_log_softmax_backward_data", kAnEntry},
      Rule{"aten::_softmax", kUntil2_15},
      Rule{"aten::_softmax_backward_data", kAnEntry},
      Rule{"aten::binary_cross_entropy", kAnEntry},
      Rule{"aten::binary_cross_entropy_backward", kAnEntry},
      Rule{"aten::log_sigmoid_backward", kAnEntry},
      Rule{"aten::log_sigmoid_forward", kAnEntry},
      Rule{"aten::mse_loss", kAnEntry},
      Rule{"aten::mse_loss_backward", kAnEntry},
      Rule{"aten::native_batch_norm", kAnEntry},
      Rule{"aten::native_batch_norm_backward", kAnEntry},
      Rule{"aten::native_layer_norm", kNothing},
      Rule{"aten::native_layer_norm_backward", kAnEntry},
      Rule{"aten::nll_loss_backward", kUntil2_15},
      Rule{"aten::nll_loss_forward", kUntil2_15},
      Rule{"aten::sgn", kAnEntry},
      Rule{"aten::smooth_l1_loss", kAnEntry},
      Rule{"aten::smooth_l1_loss_backward", kAnEntry},
      Rule{"aten::threshold_backward", kAnEntry},
      // Rows by index, and choices.
      Rule{"aten::arange", kUntil2_15},
      Rule{"aten::index_add", kUntil2_15},
      Rule{"aten::index_add_", kUntil2_15},
      Rule{"aten::index_select", kUntil2_15},
      Rule{"aten::logical_and", kAnEntry},
      Rule{"aten::where", kUntil2_15},
      // Metal kernels, which serve every shape.
      Rule{"aten::_fused_adam_", kNothing},
      Rule{"aten::_fused_adamw_", kNothing},
      Rule{"aten::_fused_sgd_", kNothing},
      Rule{"aten::_index_put_impl_", kNothing},
      Rule{"aten::_reshape_alias", kNothing},
      Rule{"aten::abs", kNothing},
      Rule{"aten::add", kNothing},
      Rule{"aten::add_", kNothing},
      Rule{"aten::addcmul", kNothing},
      Rule{"aten::amax", kNothing},
      Rule{"aten::as_strided", kNothing},
      Rule{"aten::bitwise_and", kNothing},
      Rule{"aten::bitwise_left_shift", kNothing},
      Rule{"aten::bitwise_right_shift", kNothing},
      Rule{"aten::bitwise_xor", kNothing},
      Rule{"aten::cat", kNothing},
      Rule{"aten::clamp_max", kNothing},
      Rule{"aten::clamp_min", kNothing},
      Rule{"aten::copy_", kNothing},
      Rule{"aten::cumsum", kNothing},
      Rule{"aten::div", kNothing},
      Rule{"aten::empty", kNothing},
      Rule{"aten::empty_strided", kNothing},
      Rule{"aten::eq", kNothing},
      Rule{"aten::exp", kNothing},
      Rule{"aten::fill_", kNothing},
      Rule{"aten::gather", kNothing},
      Rule{"aten::gt", kNothing},
      Rule{"aten::index", kNothing},
      Rule{"aten::leaky_relu", kNothing},
      Rule{"aten::leaky_relu_backward", kNothing},
      Rule{"aten::lerp_", kNothing},
      Rule{"aten::linalg_vector_norm", kNothing},
      Rule{"aten::log", kNothing},
      Rule{"aten::log1p", kNothing},
      Rule{"aten::lt", kNothing},
      Rule{"aten::mul", kNothing},
      Rule{"aten::mul_", kNothing},
      Rule{"aten::neg", kNothing},
      Rule{"aten::pow", kNothing},
      Rule{"aten::reciprocal", kNothing},
      Rule{"aten::relu", kNothing},
      Rule{"aten::relu_", kNothing},
      Rule{"aten::rsqrt", kNothing},
      Rule{"aten::scatter", kNothing},
      Rule{"aten::scatter_add", kNothing},
      Rule{"aten::scatter_add_", kNothing},
      // Moved to Metal with the other scatters, pytorch#184028.
      Rule{"aten::scatter_reduce", kNothing},
      Rule{"aten::searchsorted", kNothing},
      Rule{"aten::sigmoid", kNothing},
      Rule{"aten::sub", kNothing},
      Rule{"aten::sub_", kNothing},
      Rule{"aten::sum", kNothing},
      Rule{"aten::view", kNothing},
      Rule{"aten::zero_", kNothing},
  };
  std::ranges::sort(rules, {}, &Rule::op);
  return rules;
}();
static_assert(std::ranges::adjacent_find(kMpsRules, {}, &Rule::op) == kMpsRules.end());

// Returns whether a linear needs no graph: it has two dimensions, without a bias, and laid out in order.
bool IsPlainLinear(const OpCall& call) {
  const auto present = [](const CallTensor& tensor) { return !tensor.type.empty(); };
  return std::ranges::count_if(call.tensors, present) == 2 && call.tensors[0].sizes.size() == 2 &&
         std::ranges::all_of(call.tensors, &CallTensor::contiguous);
}

}  // namespace

std::optional<int64_t> EntriesOf(const OpCall& call, TorchRelease release) {
  const auto rule = std::ranges::lower_bound(kMpsRules, std::string_view(call.op), {}, &Rule::op);
  if (rule == kMpsRules.end() || rule->op != call.op) return std::nullopt;
  switch (rule->adds) {
    case Adds::kNothing:
      return 0;
    case Adds::kUntil2_15:
      return release == TorchRelease::k2_13 ? 1 : 0;
    case Adds::kAnEntry:
      return 1;
    case Adds::kForEachGradient:
      // One entry for the input and one for the weight; the bias's gradient is a sum.
      return 2;
    case Adds::kUnlessPlain:
      return IsPlainLinear(call) ? 0 : 1;
  }
  return std::nullopt;
}

}  // namespace permafrost::graphcache
