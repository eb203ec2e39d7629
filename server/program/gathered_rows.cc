#include "program/gathered_rows.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "program/operators.h"

namespace permafrost::program {
namespace {

// kMaxTerms is the most terms of a sum of gathers. For a longer sum, reading the computed sum is faster than gathering
// its terms again. kMaxColumns is the most Columns of a tensor.
constexpr size_t kMaxTerms = 4, kMaxColumns = 64;

// Operators that can add or remove dimensions of size 1. They can also do more, so FollowShape compares sizes to
// check that a node does only this.
constexpr std::string_view kShapeOperators[] = {"aten::view",    "aten::reshape", "aten::_unsafe_view", "aten::flatten",
                                                "aten::squeeze", "aten::select",  "aten::unsqueeze",    "aten::slice",
                                                "aten::repeat",  "aten::expand"};

// Returns the factor if the argument is a finite number other than 0, and not a tensor.
std::optional<double> FactorOf(const Node& node, std::string_view name) {
  const Argument* argument = ArgumentOf(node, name);
  const std::optional<double> factor = argument == nullptr ? std::nullopt : RealOf(*argument);
  return factor && std::isfinite(*factor) && *factor != 0 ? factor : std::nullopt;
}

bool IsGathered(const Columns& columns) { return !columns.sum.empty(); }

// Returns a + factor * b; nullopt if any columns of `a` or `b` are not gathered, or if the sum is too long.
std::optional<Rows> Sum(const Rows& a, const Rows& b, double factor) {
  if (a.size() != b.size()) return std::nullopt;
  Rows sum = a;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!IsGathered(a[i]) || !IsGathered(b[i]) || a[i].width != b[i].width) return std::nullopt;
    for (const GatherTerm& term : b[i].sum) {
      const auto equal =
          std::ranges::find_if(sum[i].sum, [&](const GatherTerm& other) { return other.gather == term.gather; });
      if (equal != sum[i].sum.end()) {
        equal->factor += factor * term.factor;
      } else {
        sum[i].sum.push_back({term.gather, factor * term.factor});
      }
    }
    if (sum[i].sum.size() > kMaxTerms) return std::nullopt;
  }
  return sum;
}

}  // namespace

std::optional<int64_t> WidthOfRows(const TensorType& type) {
  const std::vector<Size>& sizes = type.sizes;
  if (sizes.size() < 2 || !IsReal(type.dtype)) return std::nullopt;
  const bool flat = std::ranges::all_of(std::span(sizes).subspan(1, sizes.size() - 2),
                                        [](const Size& size) { return size == Size{.number = 1}; });
  if (!flat || !sizes.back().expression.empty() || sizes.back().number < 1) return std::nullopt;
  return sizes.back().number;
}

RowFacts::RowFacts(const Graph& graph, BatchSymbols symbols)
    : graph_(graph), symbols_(std::move(symbols)), memory_(graph), known_values_(graph.values.size()) {}

const TensorType* RowFacts::TypeOf(ValueIndex value) const {
  return value == kNoValue || !graph_.values[value].type ? nullptr : &*graph_.values[value].type;
}

void RowFacts::Learn(ValueIndex value, Rows rows) {
  const bool gathered = std::ranges::any_of(rows, IsGathered);
  if (gathered && rows.size() <= kMaxColumns && !IsWritten(value)) rows_.insert_or_assign(value, std::move(rows));
}

// Returns true for sizes such as "E" and "N + E". Also returns true for sizes that depend on values, such as the
// number of edges that a mask keeps.
bool RowFacts::IsOfEdges(const Size& size) const {
  const std::string& text = size.expression;
  const auto is_of_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin;
    while (end < text.size() && is_of_name(text[end])) ++end;
    const std::string_view name = std::string_view(text).substr(begin, end - begin);
    if (name.size() > 1 && name[0] == 'u' && std::isdigit(static_cast<unsigned char>(name[1])) != 0) return true;
    if (!name.empty() && name == symbols_.edges) return true;
    begin = std::max(end, begin + 1);
  }
  return false;
}

ValueIndex RowFacts::Flat(ValueIndex value) const {
  const auto found = flat_.find(value);
  return found == flat_.end() ? value : found->second;
}

const Rows* RowFacts::Gathered(ValueIndex value) const {
  const auto found = rows_.find(Flat(value));
  return found == rows_.end() ? nullptr : &found->second;
}

std::optional<Rows> RowFacts::RowsOf(ValueIndex value) const {
  if (value == kNoValue || IsWritten(value)) return std::nullopt;
  if (const Rows* gathered = Gathered(value)) return *gathered;
  const ValueIndex flat = Flat(value);
  const TensorType* type = TypeOf(flat);
  const auto width = type == nullptr ? std::nullopt : WidthOfRows(*type);
  if (!width) return std::nullopt;
  return Rows{{.sum = {}, .plain = flat, .width = *width}};
}

std::vector<ValueIndex> RowFacts::PartsOf(ValueIndex value) const {
  const auto found = parts_.find(Flat(value));
  return found == parts_.end() ? std::vector<ValueIndex>() : found->second;
}

void RowFacts::Follow(const Node& node) {
  const ValueIndex result = ResultOf(node), self = ValueOf(node, "self");
  if (result == kNoValue || IsWritten(result) || TypeOf(result) == nullptr) return;
  const std::string op = OperatorOf(node);
  if (op == "aten::embedding" && IsPlainEmbedding(node)) {
    Add(ValueOf(node, "weight"), ValueOf(node, "indices"), Gather::By::kEmbedding, result);
  } else if (op == "aten::index_select") {
    const TensorType* type = TypeOf(self);
    const auto dim = NumberOf(node, "dim", 0);
    const bool of_rows = type != nullptr && (dim == 0 || dim == -static_cast<int64_t>(type->sizes.size()));
    if (of_rows) Add(self, ValueOf(node, "index"), Gather::By::kIndexSelect, result);
  } else if (op == "aten::index") {
    const std::vector<ValueIndex> indices = ListOf(node, "indices");
    if (indices.size() == 1) Add(self, indices[0], Gather::By::kIndex, result);
  } else if (op == "aten::cat" || op == "aten::stack") {
    FollowCat(node, result);
  } else if (op == "aten::add" || op == "aten::sub") {
    FollowSum(node, result, op == "aten::add" ? 1 : -1);
  } else if (op == "aten::neg" || op == "aten::mul" || op == "aten::div") {
    FollowScaled(node, op, result);
  } else if (op == "aten::alias" || op == "aten::contiguous" || op == "aten::clone") {
    FollowShape(self, result, /*keeps_sizes=*/true);
  } else if (op == "aten::dropout" && !Draws(node)) {
    FollowShape(ValueOf(node, "input"), result, /*keeps_sizes=*/true);
  } else if (std::ranges::find(kShapeOperators, op) != std::end(kShapeOperators)) {
    FollowShape(self, result, /*keeps_sizes=*/false);
  }
}

void RowFacts::Add(ValueIndex table, ValueIndex index, Gather::By by, ValueIndex result) {
  if (table == kNoValue || index == kNoValue || IsWritten(table) || IsWritten(index)) return;
  table = Flat(table);
  const TensorType *of_table = TypeOf(table), *of_index = TypeOf(index), *type = TypeOf(result);
  if (of_table == nullptr || of_index == nullptr || of_table->sizes.size() != 2 || of_index->sizes.size() != 1) return;
  const auto width = WidthOfRows(*of_table);
  const bool by_numbers = of_index->dtype == DType::kInt64 || of_index->dtype == DType::kInt32;
  if (!by_numbers || !width || WidthOfRows(*type) != width) return;
  const Size& rows = of_table->sizes[0];
  const bool small = rows.expression.empty() && rows.number <= kSmallTable;
  const bool of_nodes = !rows.expression.empty() && rows.expression == symbols_.nodes;
  if (!small && !(of_nodes && IsOfEdges(type->sizes[0]))) return;
  const Gather gather{.table = table, .index = index, .by = by, .small = small};
  Learn(result, {{.sum = {{gather}}, .plain = kNoValue, .width = *width}});
}

void RowFacts::FollowCat(const Node& node, ValueIndex result) {
  const std::vector<ValueIndex> parts = ListOf(node, "tensors");
  if (parts.size() == 1 && !IsWritten(parts[0])) FollowShape(parts[0], result, /*keeps_sizes=*/false);
  const auto rank = static_cast<int64_t>(TypeOf(result)->sizes.size());
  const auto dim = NumberOf(node, "dim", 0);
  if (OperatorOf(node) != "aten::cat" || parts.size() < 2 || !dim) return;
  Rows rows;
  for (const ValueIndex part : parts) {
    const TensorType* type = part == kNoValue || IsWritten(part) ? nullptr : TypeOf(part);
    const auto columns = RowsOf(part);
    if (type == nullptr || !columns || static_cast<int64_t>(type->sizes.size()) != rank) return;
    if (type->dtype != TypeOf(result)->dtype) return;
    rows.insert(rows.end(), columns->begin(), columns->end());
    if (rows.size() > kMaxColumns) return;
  }
  if (*dim == -1 || *dim == rank - 1) Learn(result, std::move(rows));
  if (rank == 2 && (*dim == 0 || *dim == -2)) parts_.insert_or_assign(result, parts);
}

void RowFacts::FollowSum(const Node& node, ValueIndex result, double sign) {
  const ValueIndex self = ValueOf(node, "self"), other = ValueOf(node, "other");
  if (self == kNoValue || other == kNoValue || IsWritten(self) || IsWritten(other)) return;
  const Rows *a = Gathered(self), *b = Gathered(other);
  const TensorType *of_self = TypeOf(self), *of_other = TypeOf(other);
  if (a == nullptr || b == nullptr || of_self == nullptr || of_other == nullptr) return;
  const auto alpha = ArgumentOf(node, "alpha") == nullptr ? std::optional(1.0) : FactorOf(node, "alpha");
  if (!alpha || of_self->sizes != of_other->sizes || of_self->dtype != of_other->dtype) return;
  if (auto sum = Sum(*a, *b, sign * *alpha)) Learn(result, *std::move(sum));
}

void RowFacts::FollowScaled(const Node& node, const std::string& op, ValueIndex result) {
  const ValueIndex self = ValueOf(node, "self");
  const Rows* rows = self == kNoValue || IsWritten(self) ? nullptr : Gathered(self);
  const bool rounds = ArgumentOf(node, "rounding_mode") != nullptr;
  const auto factor = op == "aten::neg" ? std::optional(-1.0) : FactorOf(node, "other");
  if (rows == nullptr || rounds || !factor || !std::ranges::all_of(*rows, IsGathered)) return;
  Rows scaled = *rows;
  for (Columns& columns : scaled)
    for (GatherTerm& term : columns.sum) term.factor *= op == "aten::div" ? 1 / *factor : *factor;
  Learn(result, std::move(scaled));
}

void RowFacts::FollowShape(ValueIndex self, ValueIndex result, bool keeps_sizes) {
  if (self == kNoValue || IsWritten(self)) return;
  const TensorType *from = TypeOf(self), *to = TypeOf(result);
  const bool of_rows = from != nullptr && WidthOfRows(*from) && WidthOfRows(*from) == WidthOfRows(*to);
  if (!of_rows || (!keeps_sizes && from->sizes[0] != to->sizes[0])) return;
  const ValueIndex flat = Flat(self);
  if (TypeOf(flat)->sizes.size() == 2) {
    flat_[result] = flat;
  } else if (const Rows* rows = Gathered(self)) {
    Learn(result, *rows);
  }
}

}  // namespace permafrost::program
