#include "program/operators.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/string_view.h"
#include "base/text.h"
#include "program/symbolic.h"

namespace permafrost::program {
namespace {

// Names of the accepted ATen operators. All their overloads without `out` are accepted. No accepted operator reads or
// writes a file, or loads code. Where a kernel does not check indices, guards.cc does. Two operators are missing on
// purpose: _weight_norm writes beyond its output if its norms have another shape, and combinations allocates memory
// for every tuple.
constexpr struct {
  OperatorKind kind;
  const char* names;
} kOperators[] = {
    // Elementwise.
    {OperatorKind::kTensor,
     "abs abs_ absolute neg neg_ negative sign sgn reciprocal reciprocal_ sqrt sqrt_ rsqrt rsqrt_ square exp exp_ exp2 "
     "expm1 log log_ log2 log10 log1p sin sin_ cos cos_ tan asin acos atan atan2 sinh cosh tanh tanh_ erf erfc erfinv "
     "lgamma digamma ceil floor round trunc frac sigmoid sigmoid_ logit clamp clamp_ clamp_min clamp_min_ clamp_max "
     "clamp_max_ clip clip_ nan_to_num nan_to_num_ relu relu_ relu6 relu6_ leaky_relu leaky_relu_ elu elu_ selu selu_ "
     "celu celu_ gelu gelu_ silu silu_ mish mish_ softplus hardtanh hardtanh_ hardsigmoid hardsigmoid_ "
     "hardswish "
     "hardswish_ log_sigmoid threshold threshold_ hardshrink softshrink prelu glu sinc heaviside hypot"},
    {OperatorKind::kTensor,
     "add add_ sub sub_ rsub mul mul_ div div_ divide multiply subtract true_divide floor_divide floor_divide_ fmod "
     "remainder remainder_ pow pow_ float_power maximum minimum fmax fmin max min lerp lerp_ addcmul addcmul_ addcdiv "
     "addcdiv_ eq ne lt le gt ge eq_ ne_ lt_ le_ gt_ ge_ logical_and logical_or logical_not logical_xor logical_and_ "
     "logical_or_ logical_not_ bitwise_and bitwise_or bitwise_not bitwise_xor bitwise_and_ bitwise_or_ __and__ __or__ "
     "__xor__ isnan isinf isfinite where masked_fill masked_fill_ xlogy"},
    // Reductions, norms, softmax, losses.
    {OperatorKind::kTensor,
     "sum mean prod std var std_mean var_mean amax amin aminmax argmax argmin any all norm linalg_vector_norm "
     "logsumexp "
     "logcumsumexp cumsum cumsum_ cumprod cummax cummin median nansum nanmean count_nonzero sort argsort topk kthvalue "
     "dist "
     "cosine_similarity pairwise_distance cdist softmax log_softmax _softmax _log_softmax special_softmax "
     "special_log_softmax _safe_softmax batch_norm layer_norm native_layer_norm group_norm "
     "instance_norm rms_norm renorm mse_loss l1_loss smooth_l1_loss huber_loss nll_loss nll_loss_nd "
     "cross_entropy_loss binary_cross_entropy binary_cross_entropy_with_logits kl_div soft_margin_loss "
     "margin_ranking_loss cosine_embedding_loss hinge_embedding_loss triplet_margin_loss"},
    // Products and attention.
    {OperatorKind::kTensor,
     "linear matmul mm bmm mv dot vdot inner outer ger addmm addmm_ addmv addbmm baddbmm addr einsum tensordot "
     "bilinear "
     "chain_matmul linalg_multi_dot linalg_matmul linalg_cross cross kron conv1d conv2d conv3d "
     "lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell trace diag diagonal diag_embed tril tril_ triu triu_ "
     "linalg_norm linalg_matrix_norm avg_pool1d avg_pool2d max_pool1d max_pool2d adaptive_avg_pool1d "
     "adaptive_max_pool1d"},
    {OperatorKind::kRandom, "scaled_dot_product_attention lstm gru rnn_tanh rnn_relu"},
    // Gathers and scatters.
    {OperatorKind::kTensor,
     "embedding index_select gather take take_along_dim scatter scatter_ scatter_add scatter_add_ scatter_reduce "
     "scatter_reduce_ index_add index_add_ index_copy index_copy_ index_fill index_fill_ index_put index_put_ "
     "index_reduce index_reduce_ select_scatter slice_scatter diagonal_scatter "
     "one_hot bucketize isin masked_scatter masked_scatter_"},
    {OperatorKind::kUntracked,
     "index nonzero nonzero_numpy nonzero_static masked_select unique_dim unique_consecutive _unique2 "
     "repeat_interleave item _local_scalar_dense bincount"},
    // Shapes.
    {OperatorKind::kTensor,
     "view view_as reshape reshape_as _unsafe_view unsqueeze unsqueeze_ squeeze squeeze_ flatten unflatten transpose "
     "transpose_ t t_ numpy_T mT adjoint permute swapaxes swapdims movedim moveaxis expand expand_as broadcast_tensors "
     "broadcast_to repeat tile cat concat concatenate stack hstack vstack dstack column_stack split split_with_sizes "
     "unsafe_split unsafe_split_with_sizes tensor_split unsafe_chunk chunk hsplit vsplit unbind select slice narrow "
     "flip "
     "fliplr flipud roll rot90 unfold pad constant_pad_nd meshgrid cartesian_prod atleast_1d atleast_2d "
     "atleast_3d ravel"},
    // Copies, types and constants.
    {OperatorKind::kTensor,
     "to type_as _to_copy to_dense clone contiguous alias detach detach_ copy copy_ lift lift_fresh "
     "lift_fresh_copy view_as_real fill fill_ zero zero_ zeros zeros_like ones ones_like full full_like new_zeros "
     "new_ones new_full scalar_tensor arange linspace logspace eye tril_indices triu_indices _assert_tensor_metadata "
     "_assert_async numel"},
    {OperatorKind::kUninitialized, "empty empty_like new_empty"},
    {OperatorKind::kRandom,
     "dropout dropout_ native_dropout feature_dropout feature_dropout_ alpha_dropout alpha_dropout_ "
     "feature_alpha_dropout rrelu rrelu_ rand rand_like randn randn_like randint randint_like randperm bernoulli "
     "bernoulli_ uniform uniform_ normal normal_ exponential exponential_ multinomial poisson"},
};

absl::flat_hash_map<std::string, OperatorKind> MakeTable() {
  absl::flat_hash_map<std::string, OperatorKind> table;
  for (const auto& row : kOperators)
    for (const absl::string_view name : absl::StrSplit(row.names, ' '))
      table.emplace(absl::StrCat("aten::", name), row.kind);
  return table;
}

bool IsZero(const Argument* argument) { return argument != nullptr && RealOf(*argument) == 0; }

}  // namespace

std::optional<OperatorName> ParseOperator(std::string_view target) {
  absl::string_view rest = AbslView(target);
  if (!absl::ConsumePrefix(&rest, "torch.ops.")) return std::nullopt;
  const std::vector<std::string> parts = absl::StrSplit(rest, '.');
  if (parts.size() != 3) return std::nullopt;
  return OperatorName{absl::StrCat(parts[0], "::", parts[1]), parts[2] == "default" ? "" : parts[2]};
}

bool IsOwnOperator(std::string_view target) { return target.starts_with("torch.ops.permafrost."); }

std::optional<OperatorKind> FindOperator(std::string_view target) {
  static const absl::flat_hash_map<std::string, OperatorKind> table = MakeTable();
  if (FindSymbolic(target)) return OperatorKind::kSymbolic;
  if (target == "torch.ops.higher_order.wrap_with_set_grad_enabled") return OperatorKind::kNoGrad;
  if (target == "torch.ops.higher_order.wrap_with_autocast") return OperatorKind::kAutocast;
  // A view as bool could hold bytes other than 0 and 1, but kernels rely on 0 and 1.
  if (target == "torch.ops.aten.view.dtype") return std::nullopt;
  const auto parsed = ParseOperator(target);
  // "data" is the overload for packed sequences. They are refused.
  if (!parsed || absl::StrContains(parsed->overload, "out") || parsed->overload == "data") return std::nullopt;
  const auto found = table.find(parsed->name);
  return found == table.end() ? std::nullopt : std::optional(found->second);
}

bool Draws(const Node& node) {
  if (FindOperator(node.target) != OperatorKind::kRandom) return false;
  if (absl::StrContains(node.target, "attention")) {
    const Argument* p = ArgumentOf(node, "dropout_p");
    return p != nullptr && !IsZero(p);
  }
  // In recurrent operators, dropout acts between layers, so an operator of one layer draws nothing.
  const auto is_off = [&](std::string_view name) { return FlagOf(node, name, std::nullopt) == false; };
  if (ArgumentOf(node, "num_layers") != nullptr) {
    return !IsNumber(node, "num_layers", 0, 1) && !is_off("train") && !IsZero(ArgumentOf(node, "dropout"));
  }
  // Exports leave out an argument that has its default value.
  if (node.target.starts_with("torch.ops.aten.rrelu") && ArgumentOf(node, "training") == nullptr) return false;
  return !is_off("train") && !is_off("training") && !IsZero(ArgumentOf(node, "p"));
}

bool WritesInPlace(const Node& node) {
  const auto op = ParseOperator(node.target);
  return op && op->name.ends_with('_');
}

std::vector<ValueIndex> InputsOf(const Node& node) {
  std::vector<ValueIndex> values;
  for (const NamedArgument& input : node.inputs) {
    if (const auto* ref = std::get_if<Ref>(&input.value)) values.push_back(ref->value);
    if (const auto* refs = std::get_if<Refs>(&input.value))
      std::ranges::copy_if(refs->values, std::back_inserter(values), [](ValueIndex v) { return v != kNoValue; });
  }
  return values;
}

namespace {

template <class Visit>
void ForEachNode(const Graph& graph, const Visit& visit) {
  for (const Node& node : graph.nodes) {
    visit(node);
    for (const NamedArgument& input : node.inputs)
      if (const auto* region = std::get_if<std::shared_ptr<const Graph>>(&input.value)) ForEachNode(**region, visit);
  }
}

// Returns true if an LSTM projects its outputs. It then has one extra weight for each layer and direction.
bool HasProjections(const Node& node) {
  const auto flag = [&](std::string_view name) { return FlagOf(node, name, false) == true; };
  const std::optional<int64_t> layers = NumberOf(node, "num_layers", 0);
  if (!layers || *layers < 1) return false;
  const int64_t directions = flag("bidirectional") ? 2 : 1, weights = (flag("has_biases") ? 4 : 2) + 1;
  return std::ssize(ListOf(node, "params")) == directions * weights * *layers;
}

}  // namespace

absl::Status CheckOperators(const Program& program) {
  constexpr size_t kNamed = 8;
  std::string first, projections;
  std::set<std::string> others;
  ForEachNode(program.graph, [&](const Node& node) {
    if (projections.empty() && OperatorOf(node) == "aten::lstm" && HasProjections(node)) projections = Describe(node);
    if (FindOperator(node.target)) return;
    if (first.empty()) first = Describe(node);
    others.insert(Shorten(node.target));
  });
  if (first.empty() && !projections.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(projections, ": an LSTM has no projections here; use proj_size=0"));
  }
  if (first.empty()) return absl::OkStatus();
  std::string message = absl::StrCat(first, ": no program may use this operator");
  if (others.size() > 1) {
    absl::StrAppend(&message, "; ", others.size(), " operators of the program are refused:");
    size_t named = 0;
    for (const std::string& other : others) {
      if (named++ == kNamed) break;
      absl::StrAppend(&message, " ", other);
    }
  }
  return absl::InvalidArgumentError(message);
}

std::vector<const Node*> RandomNodes(const Program& program) {
  std::vector<const Node*> nodes;
  ForEachNode(program.graph, [&](const Node& node) {
    if (Draws(node)) nodes.push_back(&node);
  });
  return nodes;
}

}  // namespace permafrost::program
