#include "graphcache/census.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace permafrost::graphcache {
namespace {

enum class Adds { kNothing, kUntil2_15, kAnEntry, kForEachGradient, kUnlessPlain };

struct Rule {
  std::string_view op;
  Adds adds;
};

// The number of entries that a call of each operator adds to the cache. Sorted by operator.
constexpr auto kMpsRules = [] {
  using enum Adds;
  std::array rules{
      // Matrix products, whose kernels still use MPSGraph (pytorch#186541). The key holds the types and sizes of both
      // factors.
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
      // Operators that gather rows by index, or that choose between values.
      Rule{"aten::arange", kUntil2_15},
      Rule{"aten::index_add", kUntil2_15},
      Rule{"aten::index_add_", kUntil2_15},
      Rule{"aten::index_select", kUntil2_15},
      Rule{"aten::logical_and", kAnEntry},
      Rule{"aten::where", kUntil2_15},
      // Operators with Metal kernels. Each of these kernels serves every shape.
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
      // The scatter operators moved to Metal in pytorch#184028.
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

// Returns true if a call of linear needs no graph: its input has two dimensions, there is no bias, and the tensors
// are contiguous.
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
      // The gradients of the input and of the weight add one entry each. The gradient of the bias is a sum, which
      // adds no entry.
      return 2;
    case Adds::kUnlessPlain:
      return IsPlainLinear(call) ? 0 : 1;
  }
  return std::nullopt;
}

namespace {

using ShapeSizes = std::span<const std::vector<int64_t>>;

// Subtracts the terms from `values`. Returns the remainder if it is the same for all values, and nullopt otherwise.
std::optional<int64_t> Rest(std::span<const int64_t> values, ShapeSizes sizes,
                            const std::vector<SizeSum::Term>& terms) {
  const SizeSum sum{terms, 0};
  const int64_t rest = values[0] - sum.At(sizes[0]);
  for (size_t k = 1; k < values.size(); ++k) {
    if (values[k] - sum.At(sizes[k]) != rest) return std::nullopt;
  }
  return rest;
}

// Keeps the candidate whose constant has the least absolute value, among candidates of one kind.
class Plainest {
 public:
  Plainest(std::span<const int64_t> values, ShapeSizes sizes) : values_(values), sizes_(sizes) {}
  void Try(std::vector<SizeSum::Term> terms) {
    const std::optional<int64_t> rest = Rest(values_, sizes_, terms);
    if (rest && (!best_ || std::abs(*rest) < std::abs(best_->plus))) best_ = SizeSum{std::move(terms), *rest};
  }
  const std::optional<SizeSum>& best() const { return best_; }

 private:
  std::span<const int64_t> values_;
  ShapeSizes sizes_;
  std::optional<SizeSum> best_;
};

}  // namespace

int64_t SizeSum::At(std::span<const int64_t> sizes) const {
  int64_t sum = plus;
  for (const Term& term : terms) sum += term.factor * sizes[term.size];
  return sum;
}

std::optional<SizeSum> FindSum(std::span<const int64_t> values, ShapeSizes sizes) {
  const size_t count = sizes.front().size();
  Plainest one(values, sizes);
  for (size_t i = 0; i < count; ++i) one.Try({{i, 1}});
  if (one.best()) return one.best();
  Plainest two(values, sizes);
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      if (i <= j) two.Try({{i, 1}, {j, 1}});
      if (i != j) two.Try({{i, 1}, {j, -1}});
    }
  }
  if (two.best()) return two.best();
  Plainest multiple(values, sizes);
  for (size_t i = 0; i < count; ++i) {
    const int64_t step = sizes[1][i] - sizes[0][i];
    if (step != 0 && (values[1] - values[0]) % step == 0) multiple.Try({{i, (values[1] - values[0]) / step}});
  }
  return multiple.best();
}

namespace {

// Returns the part of a call that is equal at every shape: types, ranks, and arguments that are not integers. The
// layout of a tensor is not part of a key.
std::string FormOf(const OpCall& call) {
  std::string form = call.op;
  for (const CallTensor& tensor : call.tensors) absl::StrAppend(&form, "|", tensor.type, tensor.sizes.size());
  absl::StrAppend(&form, "|", call.rest);
  return form;
}

std::vector<int64_t> IntegersOf(const OpCall& call) {
  std::vector<int64_t> integers;
  for (const CallTensor& tensor : call.tensors) {
    integers.insert(integers.end(), tensor.sizes.begin(), tensor.sizes.end());
  }
  integers.insert(integers.end(), call.integers.begin(), call.integers.end());
  return integers;
}

absl::Status Differs(const OpCall& call, const std::string& why) {
  return absl::FailedPreconditionError(absl::StrCat("no census of the step: ", call.op, " ", why));
}

// Returns call number `place` of every stream as one call, whose integers are functions of the batch's sizes.
absl::StatusOr<SymbolicCall> FindCall(size_t place, std::span<const std::vector<OpCall>> streams,
                                      std::span<const std::vector<int64_t>> sizes) {
  const OpCall& first = streams.front()[place];
  SymbolicCall out{.op = first.op, .form = FormOf(first), .integers = {}};
  std::vector<std::vector<int64_t>> integers;
  for (const auto& stream : streams) {
    integers.push_back(IntegersOf(stream[place]));
    if (FormOf(stream[place]) != out.form || integers.back().size() != integers.front().size()) {
      return Differs(first,
                     absl::StrCat("is called as ", out.form, " and, at another shape, as ", FormOf(stream[place])));
    }
  }
  for (size_t i = 0; i < integers.front().size(); ++i) {
    std::vector<int64_t> values;
    values.reserve(integers.size());
    for (const auto& of_shape : integers) values.push_back(of_shape[i]);
    std::optional<SizeSum> sum = SizeSum{.terms = {}, .plus = values.front()};
    if (std::ranges::adjacent_find(values, std::not_equal_to()) != values.end()) {
      sum = FindSum(std::span(values).first(values.size() - 1), sizes.first(sizes.size() - 1));
    }
    if (!sum || sum->At(sizes.back()) != values.back()) {
      return Differs(first, absl::StrCat("is called with ", absl::StrJoin(values, ", "),
                                         " at as many shapes, which do not follow from the batch's sizes"));
    }
    out.integers.push_back(*std::move(sum));
  }
  return out;
}

}  // namespace

absl::StatusOr<SymbolicStep> FindCalls(std::span<const std::vector<OpCall>> streams,
                                       std::span<const std::vector<int64_t>> sizes, TorchRelease release) {
  SymbolicStep step;
  step.operators = std::ssize(streams.front());
  for (const auto& stream : streams) {
    if (std::ssize(stream) != step.operators) {
      return absl::FailedPreconditionError(absl::StrCat("no census of the step: it calls ", step.operators,
                                                        " operators, and ", stream.size(), " at another shape"));
    }
  }
  for (size_t place = 0; place < streams.front().size(); ++place) {
    const OpCall& call = streams.front()[place];
    const std::optional<int64_t> entries = EntriesOf(call, release);
    if (!entries && std::ranges::find(step.unknown, call.op) == step.unknown.end()) step.unknown.push_back(call.op);
    if (entries.value_or(0) == 0) continue;
    absl::StatusOr<SymbolicCall> symbolic = FindCall(place, streams, sizes);
    if (!symbolic.ok()) return symbolic.status();
    symbolic->entries = *entries;
    if (std::ranges::find(step.calls, *symbolic) == step.calls.end()) step.calls.push_back(*std::move(symbolic));
  }
  return step;
}

int64_t EntryCounter::Add(const SymbolicStep& step, std::span<const int64_t> sizes) {
  const int64_t before = total_;
  for (const SymbolicCall& call : step.calls) {
    std::vector<int64_t> integers;
    integers.reserve(call.integers.size());
    for (const SizeSum& integer : call.integers) integers.push_back(integer.At(sizes));
    if (!keys_.emplace(call.form, std::move(integers)).second) continue;
    by_op_[call.op] += call.entries;
    total_ += call.entries;
  }
  return total_ - before;
}

ModeCensus CountMode(const SymbolicStep& step, const SizedSchedule& schedule, const SizedShape& largest) {
  EntryCounter one, all;
  one.Add(step, largest.sizes);
  EntryCounter epoch;
  for (size_t i = 0; i < schedule.shapes.size(); ++i) {
    all.Add(step, schedule.shapes[i].sizes);
    if (std::cmp_less(i, schedule.first_epoch)) epoch.Add(step, schedule.shapes[i].sizes);
  }
  ModeCensus census{.operators = step.operators, .ops = {}, .all = {"", one.total(), epoch.total(), all.total()}};
  for (const auto& [op, count] : one.by_op()) census.ops.push_back({op, count, epoch.of(op), all.of(op)});
  return census;
}

CensusRow CountPolicy(const std::array<SymbolicStep, 2>& steps, const std::array<SizedSchedule, 2>& schedules,
                      bool empties) {
  CensusRow row{.train_shapes = std::ssize(schedules[0].shapes), .eval_shapes = std::ssize(schedules[1].shapes)};
  EntryCounter run, epoch;
  for (size_t mode = 0; mode < steps.size(); ++mode) {
    for (size_t i = 0; i < schedules[mode].shapes.size(); ++i) {
      const SizedShape& shape = schedules[mode].shapes[i];
      EntryCounter alone;
      const int64_t entries = alone.Add(steps[mode], shape.sizes);
      row.shape = std::max(row.shape, entries);
      row.compiled += entries * shape.batches;
      run.Add(steps[mode], shape.sizes);
      if (std::cmp_less(i, schedules[mode].first_epoch)) epoch.Add(steps[mode], shape.sizes);
    }
  }
  if (empties) return row;  // no entry outlives a step
  row.epoch = epoch.total();
  row.run = row.compiled = run.total();
  return row;
}

}  // namespace permafrost::graphcache
