#include "program/region_roles.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <tuple>
#include <variant>

#include "program/operators.h"

namespace permafrost::program {
namespace {

using nn::RegionLevel;
using nn::RegionOp;

// Returns true if repeating each value of a tensor of sizes `from` fills sizes `to`, as for [4, 1] and [4, 8].
// Aligned at their ends, `from` must equal `to` up to some dimension, and be 1 after it.
bool Repeats(Dims from, const Dims& to) {
  if (from.size() > to.size()) {
    const auto extra = static_cast<std::ptrdiff_t>(from.size() - to.size());
    if (std::any_of(from.begin(), from.begin() + extra, [](int64_t dim) { return dim != 1; })) return false;
    from.erase(from.begin(), from.begin() + extra);
  }
  from.insert(from.begin(), to.size() - from.size(), 1);
  bool repeated = false;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i] == 1 && from[i] == 1) continue;
    if (from[i] != to[i] && from[i] != 1) return false;
    if (from[i] == to[i] && repeated) return false;
    repeated = repeated || from[i] != to[i];
  }
  return true;
}

}  // namespace

Dims DimsBehindRows(const TensorType& type) {
  Dims dims;
  for (size_t i = 1; i < type.sizes.size(); ++i) dims.push_back(type.sizes[i].number);
  return dims;
}

int64_t WidthOf(const Dims& dims) {
  int64_t width = 1;
  for (const int64_t dim : dims)
    width = dim > kMostRegionWidth ? kMostRegionWidth + 1 : std::min(width * dim, kMostRegionWidth + 1);
  return width;
}

RegionRoles::RegionRoles(const Graph& graph, const std::vector<Input>& inputs)
    : graph_(graph), inputs_(inputs), memory_(graph), known_values_(graph.values.size()), meaning_(known_values_) {
  FindProducers();
  FindEqualIndices();
  for (const Node& node : graph_.nodes) {
    const ValueIndex result = ResultOf(node);
    if (result == kNoValue) continue;
    Meaning& meaning = meaning_[result];
    meaning.target = FindTarget(node);
    if (meaning.target) meaning.reduce = ReduceOperatorOf(node);
    meaning.gather = GatherOperatorOf(node, graph_);
    if (!meaning.gather) meaning.rows = RowOperatorOf(node, graph_);
  }
}

void RegionRoles::FindProducers() {
  producer_.assign(graph_.values.size(), kNoNode);
  for (size_t i = 0; i < graph_.nodes.size(); ++i)
    for (const Output& output : graph_.nodes[i].outputs)
      for (const ValueIndex value : output.values)
        if (value != kNoValue) producer_[value] = i;
}

const RegionRoles::Meaning& RegionRoles::MeaningOf(ValueIndex result) const {
  static const Meaning none;
  return static_cast<size_t>(result) < meaning_.size() ? meaning_[result] : none;
}

// Returns true if an operator may write to the value. Nothing writes to values that were added after construction.
bool RegionRoles::IsWritten(ValueIndex value) const {
  return static_cast<size_t>(value) < known_values_ && memory_.IsWritten(value);
}

// Finds indices that are equal, for example if a program selects the same row of edge_index several times.
void RegionRoles::FindEqualIndices() {
  equal_.resize(graph_.values.size());
  for (size_t i = 0; i < equal_.size(); ++i) equal_[i] = static_cast<ValueIndex>(i);
  std::map<std::tuple<ValueIndex, int64_t, int64_t>, ValueIndex> selected;
  for (const Node& node : graph_.nodes) {
    const ValueIndex result = ResultOf(node), self = ValueOf(node, "self");
    if (result == kNoValue || self == kNoValue || IsWritten(self)) continue;
    const std::string name = OperatorOf(node);
    if (name == "aten::select") {
      const Argument *dim = ArgumentOf(node, "dim"), *index = ArgumentOf(node, "index");
      const auto* d = dim == nullptr ? nullptr : std::get_if<int64_t>(dim);
      const auto* i = index == nullptr ? nullptr : std::get_if<int64_t>(index);
      if (d == nullptr || i == nullptr) continue;
      equal_[result] = selected.emplace(std::tuple(equal_[self], *d, *i), result).first->second;
    } else if (IsIndex(result) && IsIndex(self) && TypeOf(result)->sizes == TypeOf(self)->sizes &&
               (name == "aten::view" || name == "aten::alias" || name == "aten::expand_as" || name == "aten::expand" ||
                name == "aten::reshape")) {
      equal_[result] = equal_[self];
    }
  }
}

bool RegionRoles::IsIndex(ValueIndex value) const {
  return value != kNoValue && TypeOf(value) && TypeOf(value)->dtype == DType::kInt64 &&
         TypeOf(value)->sizes.size() == 1;
}

// Returns the one-dimensional index from which a scatter's index was expanded to all columns. Returns kNoValue if
// there is none.
ValueIndex RegionRoles::BaseOf(ValueIndex value) const {
  while (value != kNoValue && !IsIndex(value)) {
    const size_t node = producer_[value];
    if (node == kNoNode || !TypeOf(value) || IsWritten(value)) return kNoValue;
    const std::string name = OperatorOf(graph_.nodes[node]);
    const bool reshapes = name == "aten::view" || name == "aten::unsqueeze" || name == "aten::reshape";
    if (!reshapes && name != "aten::expand" && name != "aten::expand_as") return kNoValue;
    const ValueIndex self = ValueOf(graph_.nodes[node], "self");
    if (self == kNoValue || !TypeOf(self) || TypeOf(self)->sizes.empty()) return kNoValue;
    const std::vector<Size>&from = TypeOf(self)->sizes, &to = TypeOf(value)->sizes;
    if (to.empty() || !(from[0] == to[0]) || (!reshapes && from.size() != to.size())) return kNoValue;
    const std::vector<Size>& ones = reshapes ? to : from;  // all sizes but the first must be 1
    if (std::any_of(ones.begin() + 1, ones.end(), [](const Size& size) { return !(size == Size{.number = 1}); }))
      return kNoValue;
    value = self;
  }
  return value == kNoValue || IsWritten(value) ? kNoValue : equal_[value];
}

// Returns the target of the node if it is a reduction.
std::optional<ReductionTarget> RegionRoles::FindTarget(const Node& node) const {
  const auto reduce = ReduceOperatorOf(node);
  if (!reduce || reduce->rows == kNoValue || reduce->zeros == kNoValue || reduce->index == kNoValue ||
      WritesInPlace(node))
    return std::nullopt;
  const ValueIndex result = ResultOf(node);
  const size_t zeros = producer_[reduce->zeros];
  if (zeros == kNoNode || !TypeOf(result) || !TypeOf(reduce->rows) || !TypeOf(reduce->index)) return std::nullopt;
  const auto fill = FillOperatorOf(graph_.nodes[zeros]);
  const std::vector<Size>&to = TypeOf(result)->sizes, &from = TypeOf(reduce->rows)->sizes;
  if (!fill || fill->number != 0 || to.empty() || to.size() != from.size()) return std::nullopt;
  // index_add takes an index of one dimension. A scatter takes an index for each value.
  const std::vector<Size>& places = TypeOf(reduce->index)->sizes;
  if (places != from && (places.size() != 1 || !(places[0] == from[0]) || OperatorOf(node) != "aten::index_add"))
    return std::nullopt;
  if (!std::equal(to.begin() + 1, to.end(), from.begin() + 1)) return std::nullopt;
  ReductionTarget target{
      .index = BaseOf(reduce->index), .edges = from[0], .targets = to[0], .dtype = TypeOf(result)->dtype};
  const bool told = !target.edges.expression.empty() && !target.targets.expression.empty();
  if (target.index == kNoValue || !told || target.edges == target.targets || !IsReal(target.dtype)) return std::nullopt;
  return target;
}

std::optional<RowShape> RegionRoles::ShapeOf(ValueIndex value, const ReductionTarget& target) const {
  if (value == kNoValue || !TypeOf(value)) return std::nullopt;
  const TensorType& type = *TypeOf(value);
  if (type.dtype != target.dtype && type.dtype != DType::kBool) return std::nullopt;
  RowShape rows;
  size_t first = 0;
  if (!type.sizes.empty() && !type.sizes[0].expression.empty()) {
    if (!(type.sizes[0] == target.edges) && !(type.sizes[0] == target.targets)) return std::nullopt;
    rows.level = type.sizes[0] == target.edges ? RegionLevel::kEdge : RegionLevel::kTarget;
    first = 1;
  }
  for (size_t i = first; i < type.sizes.size(); ++i) {
    if (!type.sizes[i].expression.empty() || type.sizes[i].number < 1) return std::nullopt;
    rows.dims.push_back(type.sizes[i].number);
  }
  if (WidthOf(rows.dims) > kMostRegionWidth) return std::nullopt;
  return rows;
}

void RegionRoles::GiveRoles(const ReductionTarget& target, const std::set<ValueIndex>& skipped) {
  roles_.assign(graph_.nodes.size(), {});
  depth_.assign(graph_.values.size(), 0);
  for (size_t i = 0; i < graph_.nodes.size(); ++i) {
    const Node& node = graph_.nodes[i];
    roles_[i] = RoleOf(node, target, skipped);
    const int64_t depth = DepthOf(node, roles_[i]);
    for (const Output& output : node.outputs)
      for (const ValueIndex value : output.values)
        if (value != kNoValue) depth_[value] = depth;
  }
}

int64_t RegionRoles::DepthOf(const Node& node, const RegionRole& role) const {
  int64_t most = 0;
  // Raises the depth to at least that of `value`. If `value` belongs to another region (odd depth, `within` false),
  // the depth becomes larger than that of `value`.
  const auto after = [&](ValueIndex value, bool within) {
    if (value != kNoValue) most = std::max(most, depth_[value] + (within || depth_[value] % 2 == 0 ? 0 : 1));
  };
  switch (role.kind) {
    case Kind::kNone:
      for (const ValueIndex value : ValuesOf(node)) after(value, true);
      break;
    case Kind::kGather:
      after(role.gather.table, false);
      after(role.gather.index, false);
      break;
    case Kind::kExpand:
      after(role.gather.table, true);
      break;
    case Kind::kReduce:
      after(role.reduce.rows, HasRole(role.reduce.rows));
      break;
    case Kind::kRows:
      for (const auto& operand : role.rows.operands)
        if (const auto* value = std::get_if<ValueIndex>(&operand)) after(*value, HasRole(*value));
  }
  const bool odd = role.kind != Kind::kNone;
  return (most % 2 == 1) == odd ? most : most + 1;
}

bool RegionRoles::HasRole(ValueIndex value) const {
  return producer_[value] != kNoNode && roles_[producer_[value]].kind != Kind::kNone;
}

bool RegionRoles::IsReduced(ValueIndex value) const {
  return producer_[value] != kNoNode && roles_[producer_[value]].reduced;
}

RegionRole RegionRoles::RoleOf(const Node& node, const ReductionTarget& target,
                               const std::set<ValueIndex>& skipped) const {
  RegionRole role;
  const ValueIndex result = ResultOf(node);
  if (result == kNoValue || IsWritten(result)) return role;
  const Meaning& meaning = MeaningOf(result);
  if (const auto& reduces = meaning.target) {
    if (*reduces != target || skipped.contains(result)) return role;
    role.reduce = *meaning.reduce;
    if (IsWritten(role.reduce.rows) || !ShapeOf(role.reduce.rows, target)) return role;
    role.kind = Kind::kReduce;
    role.reduced = true;
    return role;
  }
  const auto rows = ShapeOf(result, target);
  if (!rows || rows->level == RegionLevel::kShared) return role;
  if (meaning.gather) return RoleOfGather(*meaning.gather, *rows, target);
  if (!meaning.rows) return role;
  // A region can make a mask only by a comparison.
  const std::vector<nn::RegionStep>& steps = meaning.rows->steps;
  const bool makes_mask = !steps.empty() && TypeOf(result)->dtype == DType::kBool;
  if (makes_mask && (steps[0].op < RegionOp::kLess || steps[0].op > RegionOp::kNotEqual)) return role;
  return RoleOfRows(*meaning.rows, *rows, target);
}

RegionRole RegionRoles::RoleOfGather(const GatherOperator& gather, const RowShape& rows,
                                     const ReductionTarget& target) const {
  RegionRole role{.gather = gather};
  if (rows.level != RegionLevel::kEdge || !IsIndex(gather.index) || IsWritten(gather.index)) return {};
  if (gather.table == kNoValue || IsWritten(gather.table) || !TypeOf(gather.table)) return {};
  if (gather.wraps && !IsEndOfEdges(equal_[gather.index])) return {};
  const TensorType& table = *TypeOf(gather.table);
  if (table.dtype != target.dtype || table.sizes.empty()) return {};
  if (DimsBehindRows(table) != rows.dims) return {};
  role.reduced = true;
  role.kind = equal_[gather.index] == target.index && IsReduced(gather.table) && table.sizes[0] == target.targets
                  ? Kind::kExpand
                  : Kind::kGather;
  return role;
}

// Returns true if the index is a row of the input edge_index, whose entries are never negative.
bool RegionRoles::IsEndOfEdges(ValueIndex index) const {
  const size_t node = producer_[index];
  if (node == kNoNode || OperatorOf(graph_.nodes[node]) != "aten::select") return false;
  const ValueIndex edges = ValueOf(graph_.nodes[node], "self");
  return std::ranges::any_of(inputs_,
                             [&](const Input& input) { return input.value == edges && input.name == "edge_index"; });
}

RegionRole RegionRoles::RoleOfRows(const RowOperator& op, const RowShape& rows, const ReductionTarget& target) const {
  RegionRole role{.reduced = rows.level == RegionLevel::kEdge, .rows = op};
  const bool sums = !role.rows.steps.empty() && role.rows.steps[0].op == RegionOp::kRowSum;
  bool any = false;
  for (const auto& operand : role.rows.operands) {
    const auto* value = std::get_if<ValueIndex>(&operand);
    if (value == nullptr) continue;
    const auto of = ShapeOf(*value, target);
    if (!of || IsWritten(*value)) return {};
    // Masks must come from the region itself.
    if (TypeOf(*value)->dtype == DType::kBool && !HasRole(*value)) return {};
    if (of->level != RegionLevel::kShared && of->level != rows.level) return {};
    any = any || of->level == rows.level;
    role.reduced = role.reduced || IsReduced(*value);
    if (sums) continue;
    if (role.rows.steps.empty() ? WidthOf(of->dims) != WidthOf(rows.dims) && !Repeats(of->dims, rows.dims)
                                : !Repeats(of->dims, rows.dims))
      return {};
    // An operand of the result's level must have as many dimensions as the result.
    if (!role.rows.steps.empty() && of->level == rows.level && of->dims.size() != rows.dims.size()) return {};
  }
  const bool has_edges = target.index != kNoValue;
  if (any && (role.reduced || !has_edges)) role.kind = Kind::kRows;
  role.joins = any && !role.reduced && has_edges;
  return role;
}

const ReductionTarget* RegionRoles::TargetOf(ValueIndex result) const {
  const auto& target = MeaningOf(result).target;
  return target ? &*target : nullptr;
}

}  // namespace permafrost::program
