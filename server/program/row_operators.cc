#include "program/region_roles.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "program/operators.h"

namespace permafrost::program {
namespace {

using nn::RegionOp;
using nn::RegionStep;

constexpr int32_t kPrevious = RowOperator::kPrevious;

// Operators that take one tensor and nothing else.
constexpr struct {
  std::string_view name;
  RegionOp op;
} kUnary[] = {{"aten::neg", RegionOp::kNeg},         {"aten::abs", RegionOp::kAbs},
              {"aten::exp", RegionOp::kExp},         {"aten::log", RegionOp::kLog},
              {"aten::sqrt", RegionOp::kSqrt},       {"aten::rsqrt", RegionOp::kRsqrt},
              {"aten::sigmoid", RegionOp::kSigmoid}, {"aten::reciprocal", RegionOp::kReciprocal},
              {"aten::tanh", RegionOp::kTanh},       {"aten::relu", RegionOp::kRelu},
              {"aten::silu", RegionOp::kSilu},       {"aten::detach", RegionOp::kDetach}};
// Operators that return their argument's values, perhaps in another shape.
constexpr std::string_view kSame[] = {"aten::view",    "aten::reshape",  "aten::unsqueeze", "aten::squeeze",
                                      "aten::flatten", "aten::alias",    "aten::clone",     "aten::contiguous",
                                      "aten::expand",  "aten::expand_as"};
constexpr struct {
  std::string_view name;
  RegionOp op;
} kComparisons[] = {{"aten::lt", RegionOp::kLess},    {"aten::le", RegionOp::kLessEqual},
                    {"aten::gt", RegionOp::kGreater}, {"aten::ge", RegionOp::kGreaterEqual},
                    {"aten::eq", RegionOp::kEqual},   {"aten::ne", RegionOp::kNotEqual}};
constexpr struct {
  std::string_view name;
  RegionOp op;
} kBinary[] = {{"aten::add", RegionOp::kAdd},         {"aten::sub", RegionOp::kSub},
               {"aten::mul", RegionOp::kMul},         {"aten::div", RegionOp::kDiv},
               {"aten::maximum", RegionOp::kMaximum}, {"aten::minimum", RegionOp::kMinimum}};

template <class Table>
auto Find(const Table& table, std::string_view name) {
  const auto found = std::ranges::find_if(table, [&](const auto& row) { return row.name == name; });
  return found == std::end(table) ? nullptr : &*found;
}

// Reads a node's arguments as a region's operands.
class Reader {
 public:
  explicit Reader(const Node& node) : node_(node) {}

  // Adds the argument to the operands if it is a tensor or a number, and returns its index there. Returns -1 for any
  // other argument.
  int32_t Operand(std::string_view name) {
    const Argument* argument = ArgumentOf(node_, name);
    if (argument == nullptr) return -1;
    if (const auto* ref = std::get_if<Ref>(argument)) {
      out_.operands.emplace_back(ref->value);
    } else if (const auto number = RealOf(*argument)) {
      out_.operands.emplace_back(*number);
    } else {
      return -1;
    }
    return static_cast<int32_t>(out_.operands.size()) - 1;
  }
  // Returns the argument's number; `absent` if it is left out or None; nullopt if it is not a known number.
  std::optional<double> Number(std::string_view name, double absent) const {
    const Argument* argument = ArgumentOf(node_, name);
    return argument == nullptr || std::holds_alternative<None>(*argument) ? absent : RealOf(*argument);
  }
  bool Has(std::string_view name) const {
    const Argument* argument = ArgumentOf(node_, name);
    return argument != nullptr && !std::holds_alternative<None>(*argument);
  }
  RowOperator& Add(const RegionStep& step) {
    out_.steps.push_back(step);
    return out_;
  }
  RowOperator Take() { return std::move(out_); }

 private:
  const Node& node_;
  RowOperator out_;
};

bool IsTensor(const RowOperator& op, int32_t place) {
  return place >= 0 && std::holds_alternative<ValueIndex>(op.operands[place]);
}

std::optional<RowOperator> Binary(const Node& node, RegionOp op) {
  Reader reader(node);
  const int32_t a = reader.Operand("self"), b = reader.Operand("other");
  const auto alpha = reader.Number("alpha", 1);
  if (a < 0 || b < 0 || !alpha || reader.Has("rounding_mode")) return std::nullopt;
  return std::move(reader.Add({.op = op, .a = a, .b = b, .x = *alpha}));
}

std::optional<RowOperator> Clamp(const Node& node, std::string_view least, std::string_view most) {
  Reader reader(node);
  int32_t from = reader.Operand("self");
  if (from < 0) return std::nullopt;
  bool any = false;
  for (const auto& [name, op] : {std::pair(least, RegionOp::kClampMin), std::pair(most, RegionOp::kClampMax)}) {
    if (name.empty() || !reader.Has(name)) continue;
    const auto bound = reader.Number(name, 0);
    if (!bound) return std::nullopt;
    reader.Add({.op = op, .a = from, .x = *bound});
    from = kPrevious;
    any = true;
  }
  return any ? std::optional(reader.Take()) : std::nullopt;
}

// Reads leaky_relu, elu or softplus. An argument for which a region's step has no field must have its default value.
std::optional<RowOperator> Activation(const Node& node, std::string_view name) {
  Reader reader(node);
  const int32_t a = reader.Operand("self");
  if (a < 0) return std::nullopt;
  const auto is = [&](std::string_view argument, double wanted) { return reader.Number(argument, wanted) == wanted; };
  if (name == "aten::leaky_relu") {
    const auto slope = reader.Number("negative_slope", 0.01);
    if (!slope) return std::nullopt;
    return std::move(reader.Add({.op = RegionOp::kLeakyRelu, .a = a, .x = *slope}));
  }
  if (name == "aten::elu") {
    const auto alpha = reader.Number("alpha", 1);
    if (!alpha || !is("scale", 1) || !is("input_scale", 1)) return std::nullopt;
    return std::move(reader.Add({.op = RegionOp::kElu, .a = a, .x = *alpha}));
  }
  if (name == "aten::softplus") {
    if (!is("beta", 1) || !is("threshold", 20)) return std::nullopt;
    return std::move(reader.Add({.op = RegionOp::kSoftplus, .a = a}));
  }
  return std::nullopt;
}

std::optional<RowOperator> Choice(const Node& node, std::string_view mask, std::string_view chosen,
                                  std::string_view other) {
  Reader reader(node);
  const int32_t c = reader.Operand(mask), a = reader.Operand(chosen), b = reader.Operand(other);
  if (a < 0 || b < 0 || c < 0) return std::nullopt;
  RowOperator op = reader.Take();
  if (!IsTensor(op, c)) return std::nullopt;
  op.steps.push_back({.op = RegionOp::kWhere, .a = a, .b = b, .c = c});
  return op;
}

constexpr int64_t kMostSummed = 1 << 14;
// Reads the sum or mean over a row's last dimensions.
std::optional<RowOperator> RowSum(const Node& node, const Graph& graph, bool mean) {
  Reader reader(node);
  const int32_t a = reader.Operand("self");
  const Argument* dims = ArgumentOf(node, "dim");
  const auto* list = dims == nullptr ? nullptr : std::get_if<Ints>(dims);
  const ValueIndex self = ValueOf(node, "self");
  if (self == kNoValue || list == nullptr || list->values.empty() || reader.Has("dtype")) return std::nullopt;
  const auto& type = graph.values[self].type;
  if (!type) return std::nullopt;
  const auto rank = static_cast<int64_t>(type->sizes.size());
  int64_t group = 1;
  std::vector<bool> summed(rank);
  for (const auto& value : list->values) {
    const auto* dim = std::get_if<int64_t>(&value);
    if (dim == nullptr || *dim < -rank || *dim >= rank) return std::nullopt;
    const int64_t at = *dim < 0 ? *dim + rank : *dim;
    if (at == 0 || !type->sizes[at].expression.empty()) return std::nullopt;
    summed[at] = true;
    const int64_t size = type->sizes[at].number;
    if (size < 1 || size > kMostSummed / group) return std::nullopt;
    group *= size;
  }
  if (!std::ranges::is_sorted(summed) || group < 1) return std::nullopt;
  reader.Add({.op = RegionOp::kRowSum, .a = a, .group = static_cast<int32_t>(group)});
  if (mean) reader.Add({.op = RegionOp::kScale, .a = kPrevious, .x = 1 / static_cast<double>(group)});
  return reader.Take();
}

bool IsNumberOf(const Node& node, std::string_view name, double absent, double wanted) {
  return Reader(node).Number(name, absent) == wanted;
}
bool IsTrue(const Node& node, std::string_view name, bool absent) {
  return FlagOf(node, name, absent).value_or(absent);
}

}  // namespace

std::optional<RowOperator> RowOperatorOf(const Node& node, const Graph& graph) {
  const auto parsed = ParseOperator(node.target);
  if (!parsed || ResultOf(node) == kNoValue) return std::nullopt;
  const std::string_view name = parsed->name, overload = parsed->overload;
  Reader reader(node);
  if (const auto* row = Find(kUnary, name)) {
    const int32_t a = reader.Operand("self");
    if (a < 0) return std::nullopt;
    return std::move(reader.Add({.op = row->op, .a = a}));
  }
  if (std::ranges::find(kSame, name) != std::end(kSame)) {
    if (overload == "dtype" || reader.Operand("self") < 0) return std::nullopt;
    return reader.Take();
  }
  if (name == "aten::dropout") {
    if (Draws(node) || reader.Operand("input") < 0) return std::nullopt;
    return reader.Take();
  }
  if (const auto* row = Find(kBinary, name)) return Binary(node, row->op);
  if (const auto* row = Find(kComparisons, name)) {
    const int32_t a = reader.Operand("self");
    const auto bound = reader.Has("other") ? reader.Number("other", 0) : std::nullopt;
    if (a < 0 || !bound) return std::nullopt;
    return std::move(reader.Add({.op = row->op, .a = a, .x = *bound}));
  }
  if (name == "aten::square") {
    const int32_t a = reader.Operand("self");
    if (a < 0) return std::nullopt;
    return std::move(reader.Add({.op = RegionOp::kMul, .a = a, .b = a}));
  }
  if (name == "aten::pow" && overload == "Tensor_Scalar") {
    const int32_t a = reader.Operand("self");
    const auto exponent = reader.Has("exponent") ? reader.Number("exponent", 1) : std::nullopt;
    if (a < 0 || !exponent) return std::nullopt;
    if (*exponent == 2) return std::move(reader.Add({.op = RegionOp::kMul, .a = a, .b = a}));
    return std::move(reader.Add({.op = RegionOp::kPower, .a = a, .x = *exponent}));
  }
  if (name == "aten::clamp") return Clamp(node, "min", "max");
  if (name == "aten::clamp_min") return Clamp(node, "min", "");
  if (name == "aten::clamp_max") return Clamp(node, "", "max");
  if (name == "aten::masked_fill") return Choice(node, "mask", "value", "self");
  if (name == "aten::where" && !overload.empty()) return Choice(node, "condition", "self", "other");
  if (name == "aten::sum" && overload == "dim_IntList") return RowSum(node, graph, /*mean=*/false);
  if (name == "aten::mean" && overload == "dim") return RowSum(node, graph, /*mean=*/true);
  return Activation(node, name);
}

std::optional<GatherOperator> GatherOperatorOf(const Node& node, const Graph& graph) {
  const auto parsed = ParseOperator(node.target);
  if (!parsed || ResultOf(node) == kNoValue) return std::nullopt;
  if (parsed->name == "aten::index_select") {
    const ValueIndex table = ValueOf(node, "self");
    if (table == kNoValue || !graph.values[table].type) return std::nullopt;
    const auto rank = static_cast<double>(graph.values[table].type->sizes.size());
    if (!IsNumberOf(node, "dim", 1, 0) && !IsNumberOf(node, "dim", 1, -rank)) return std::nullopt;
    return GatherOperator{.table = table, .index = ValueOf(node, "index")};
  }
  if (parsed->name == "aten::embedding") {
    if (!IsPlainEmbedding(node)) return std::nullopt;
    return GatherOperator{.table = ValueOf(node, "weight"), .index = ValueOf(node, "indices")};
  }
  if (parsed->name == "aten::index" && parsed->overload == "Tensor") {
    const std::vector<ValueIndex> indices = ListOf(node, "indices");
    if (indices.size() != 1 || indices[0] == kNoValue) return std::nullopt;
    return GatherOperator{.table = ValueOf(node, "self"), .index = indices[0], .wraps = true};
  }
  return std::nullopt;
}

std::optional<ReduceOperator> ReduceOperatorOf(const Node& node) {
  const auto parsed = ParseOperator(node.target);
  if (!parsed || ResultOf(node) == kNoValue || !IsNumberOf(node, "dim", 1, 0)) return std::nullopt;
  const std::string_view name = parsed->name;
  ReduceOperator found{.zeros = ValueOf(node, "self"), .index = ValueOf(node, "index"), .rows = ValueOf(node, "src")};
  if (name == "aten::scatter_add_" || name == "aten::scatter_add") return found;
  if (name == "aten::index_add_" || name == "aten::index_add") {
    if (!IsNumberOf(node, "alpha", 1, 1)) return std::nullopt;
    found.rows = ValueOf(node, "source");
    return found;
  }
  if (name != "aten::scatter_reduce_" && name != "aten::scatter_reduce") return std::nullopt;
  const Argument* reduce = ArgumentOf(node, "reduce");
  const auto* how = reduce == nullptr ? nullptr : std::get_if<std::string>(reduce);
  if (how == nullptr) return std::nullopt;
  if (*how == "sum") return found;
  if ((*how != "amax" && *how != "amin") || IsTrue(node, "include_self", true)) return std::nullopt;
  found.op = *how == "amax" ? RegionOp::kMax : RegionOp::kMin;
  return found;
}

std::optional<FillOperator> FillOperatorOf(const Node& node) {
  const auto parsed = ParseOperator(node.target);
  if (!parsed || ResultOf(node) == kNoValue) return std::nullopt;
  const bool zeros = parsed->name == "aten::new_zeros" || parsed->name == "aten::zeros";
  const bool ones = parsed->name == "aten::new_ones" || parsed->name == "aten::ones";
  if (!zeros && !ones) return std::nullopt;
  return FillOperator{.number = zeros ? 0.0 : 1.0, .size = ArgumentOf(node, "size")};
}

}  // namespace permafrost::program
