#include "program/edge_regions.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <ranges>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "program/node_access.h"
#include "program/operators.h"
#include "program/orphans.h"
#include "program/row_operators.h"
#include "program/shared_memory.h"

namespace permafrost::program {
namespace {

using nn::RegionLevel;
using nn::RegionOp;
using nn::RegionStep;

// Programs with more nodes are left alone, since each region is looked for among all of them.
constexpr size_t kMostNodes = 10'000, kMostRegions = 512;
constexpr size_t kMostSteps = 200;
constexpr int64_t kMostWidth = 1 << 14;  // of a step
// Tables with at most so many rows sum their gradients without their index's order.
constexpr int64_t kFewRows = 64;

constexpr size_t kNowhere = SIZE_MAX;

// Sizes of a tensor behind its rows. All of them are known.
using Dims = std::vector<int64_t>;
int64_t WidthOf(const Dims& dims) {
  int64_t width = 1;
  for (const int64_t dim : dims) width = dim > kMostWidth ? kMostWidth + 1 : std::min(width * dim, kMostWidth + 1);
  return width;
}
// Whether `from` stands for `to` if each of its values is repeated: it has the first of `to`'s dimensions, and 1 for
// the others. Both are aligned at their ends.
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

// RowShape that edges are reduced to: the index that says where, and how many rows go in and come out.
struct Target {
  ValueIndex index = kNoValue;
  Size edges, targets;
  DType dtype = DType::kFloat32;
};

// What a value is for a target.
struct RowShape {
  RegionLevel level = RegionLevel::kShared;
  Dims dims;
};

// What a node is for a target.
struct Role {
  enum class Kind { kNone, kRows, kGather, kExpand, kReduce };
  Kind kind = Kind::kNone;
  bool reduced = false;  // target rows that follow from a reduction, or edge rows
  RowOperator rows;
  GatherOperator gather;
  ReduceOperator reduce;
};

// What a node does, whatever the target.
struct Meaning {
  std::optional<Target> target;  // of a reduction
  std::optional<ReduceOperator> reduce;
  std::optional<GatherOperator> gather;
  std::optional<RowOperator> rows;
};

// The nodes of a region in the making, and its steps.
struct Draft {
  Target target;
  std::set<size_t> nodes;     // that the region stands for
  std::set<size_t> copied;    // gathers that it repeats
  std::set<size_t> orphaned;  // that nothing uses beside it
  nn::EdgeRegion region;
  std::vector<ValueIndex> inputs;
  std::vector<std::pair<ValueIndex, Size>> indices;  // an index, and the rows of its tables
  std::vector<ValueIndex> outputs;                   // values of the program
};

class Finder {
 public:
  Finder(const Program& program, bool differentiated)
      : original_(program), program_(program), differentiated_(differentiated) {}

  std::optional<FusedProgram> Run() {
    if (graph().nodes.size() > kMostNodes) return std::nullopt;
    Normalize();
    Analyze();
    while (found_.size() < kMostRegions) {
      FindProducers();
      const size_t node = NextReduction();
      if (node == kNowhere) break;
      if (std::optional<Draft> draft = MakeDraft(node)) {
        if (!Replace(*draft)) Skip(*draft);
      } else {
        skipped_.insert(ResultOf(graph().nodes[node]));
      }
    }
    if (found_.empty()) return std::nullopt;
    RemoveOrphans(original_, program_);
    return FusedProgram{.program = std::move(program_), .regions = std::move(found_)};
  }

 private:
  using Kind = Role::Kind;

  Graph& graph() { return program_.graph; }
  const Graph& graph() const { return program_.graph; }
  const std::optional<TensorType>& TypeOf(ValueIndex value) const { return graph().values[value].type; }

  // Lets fills take their type from a parameter, so that they depend on nothing that is worked out, and reductions
  // return memory of their own.
  void Normalize() {
    const SharedMemory memory(graph());
    const std::vector<int64_t> uses = CountUses();
    std::map<DType, ValueIndex> states;
    for (const State& state : program_.state)
      if (!memory.IsWritten(state.value)) states.emplace(state.type.dtype, state.value);
    std::set<ValueIndex> zeros;
    for (Node& node : graph().nodes) {
      const ValueIndex result = ResultOf(node);
      if (const auto fill = FillOperatorOf(node)) {
        if (fill->number == 0) zeros.insert(result);
        const ValueIndex self = ValueOf(node, "self");
        const bool plain = self != kNoValue && TypeOf(self) && ArgumentOf(node, "dtype") == nullptr;
        if (!plain || !states.contains(TypeOf(self)->dtype)) continue;
        for (NamedArgument& input : node.inputs)
          if (input.name == "self") input.value = Ref{states.at(TypeOf(self)->dtype)};
      } else if (const auto reduce = ReduceOperatorOf(node); reduce && WritesInPlace(node)) {
        const bool alone = zeros.contains(reduce->zeros) && uses[reduce->zeros] == 1 && memory.WritersOf(result) == 1;
        const size_t at = node.target.find("_.");
        if (alone && at != std::string::npos) node.target.erase(at, 1);
      }
    }
  }

  std::vector<int64_t> CountUses() const {
    std::vector<int64_t> uses(graph().values.size());
    const auto use = [&](ValueIndex value) {
      if (value != kNoValue) ++uses[value];
    };
    for (const Node& node : graph().nodes)
      for (const ValueIndex value : ValuesOf(node)) use(value);
    for (const ValueIndex output : graph().outputs) use(output);
    return uses;
  }

  // What the nodes do, which does not change when others are replaced. Nodes that are put in are in no region.
  void Analyze() {
    memory_.emplace(graph());
    known_values_ = graph().values.size();
    FindProducers();
    FindEqualIndices();
    meaning_.resize(known_values_);
    for (const Node& node : graph().nodes) {
      const ValueIndex result = ResultOf(node);
      if (result == kNoValue) continue;
      Meaning& meaning = meaning_[result];
      meaning.target = FindTarget(node);
      if (meaning.target) meaning.reduce = ReduceOperatorOf(node);
      meaning.gather = GatherOperatorOf(node, graph());
      if (!meaning.gather) meaning.rows = RowOperatorOf(node, graph());
    }
  }
  void FindProducers() {
    producer_.assign(graph().values.size(), kNowhere);
    for (size_t i = 0; i < graph().nodes.size(); ++i)
      for (const Output& output : graph().nodes[i].outputs)
        for (const ValueIndex value : output.values)
          if (value != kNoValue) producer_[value] = i;
  }
  const Meaning& MeaningOf(ValueIndex result) const {
    static const Meaning none;
    return static_cast<size_t>(result) < meaning_.size() ? meaning_[result] : none;
  }
  // Nothing writes to what is put in.
  bool IsWritten(ValueIndex value) const {
    return static_cast<size_t>(value) < known_values_ && memory_->IsWritten(value);
  }

  // Ends of edges that are selected more than once are one index.
  void FindEqualIndices() {
    equal_.resize(graph().values.size());
    for (size_t i = 0; i < equal_.size(); ++i) equal_[i] = static_cast<ValueIndex>(i);
    std::map<std::tuple<ValueIndex, int64_t, int64_t>, ValueIndex> selected;
    for (const Node& node : graph().nodes) {
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
                 (name == "aten::view" || name == "aten::alias" || name == "aten::expand_as" ||
                  name == "aten::expand" || name == "aten::reshape")) {
        equal_[result] = equal_[self];
      }
    }
  }
  bool IsIndex(ValueIndex value) const {
    return value != kNoValue && TypeOf(value) && TypeOf(value)->dtype == DType::kInt64 &&
           TypeOf(value)->sizes.size() == 1;
  }
  // Returns the index of one dimension that a scatter's index repeats for every column; kNoValue: it is another.
  ValueIndex BaseOf(ValueIndex value) const {
    while (value != kNoValue && !IsIndex(value)) {
      const size_t node = producer_[value];
      if (node == kNowhere || !TypeOf(value) || IsWritten(value)) return kNoValue;
      const std::string name = OperatorOf(graph().nodes[node]);
      const bool reshapes = name == "aten::view" || name == "aten::unsqueeze" || name == "aten::reshape";
      if (!reshapes && name != "aten::expand" && name != "aten::expand_as") return kNoValue;
      const ValueIndex self = ValueOf(graph().nodes[node], "self");
      if (self == kNoValue || !TypeOf(self) || TypeOf(self)->sizes.empty()) return kNoValue;
      const std::vector<Size>&from = TypeOf(self)->sizes, &to = TypeOf(value)->sizes;
      if (to.empty() || !(from[0] == to[0]) || (!reshapes && from.size() != to.size())) return kNoValue;
      const std::vector<Size>& ones = reshapes ? to : from;  // whose other sizes are all 1
      if (std::any_of(ones.begin() + 1, ones.end(), [](const Size& size) { return !(size == Size{.number = 1}); }))
        return kNoValue;
      value = self;
    }
    return value == kNoValue || IsWritten(value) ? kNoValue : equal_[value];
  }

  static bool IsReal(DType dtype) { return dtype == DType::kFloat32 || dtype == DType::kFloat64; }

  // Returns what the reduction reduces to, if it is one.
  std::optional<Target> FindTarget(const Node& node) const {
    const auto reduce = ReduceOperatorOf(node);
    if (!reduce || reduce->rows == kNoValue || reduce->zeros == kNoValue || WritesInPlace(node)) return std::nullopt;
    const ValueIndex result = ResultOf(node);
    const size_t zeros = producer_[reduce->zeros];
    if (zeros == kNowhere || !TypeOf(result) || !TypeOf(reduce->rows) || !TypeOf(reduce->index)) return std::nullopt;
    const auto fill = FillOperatorOf(graph().nodes[zeros]);
    const std::vector<Size>&to = TypeOf(result)->sizes, &from = TypeOf(reduce->rows)->sizes;
    if (!fill || fill->number != 0 || to.empty() || to.size() != from.size()) return std::nullopt;
    // index_add takes an index of one dimension, a scatter one for each value.
    const std::vector<Size>& places = TypeOf(reduce->index)->sizes;
    if (places != from && (places.size() != 1 || !(places[0] == from[0]) || OperatorOf(node) != "aten::index_add"))
      return std::nullopt;
    if (!std::equal(to.begin() + 1, to.end(), from.begin() + 1)) return std::nullopt;
    const Target target{
        .index = BaseOf(reduce->index), .edges = from[0], .targets = to[0], .dtype = TypeOf(result)->dtype};
    const bool told = !target.edges.expression.empty() && !target.targets.expression.empty();
    if (target.index == kNoValue || !told || target.edges == target.targets || !IsReal(target.dtype))
      return std::nullopt;
    return target;
  }

  size_t NextReduction() const {
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      const ValueIndex result = ResultOf(graph().nodes[i]);
      if (result != kNoValue && MeaningOf(result).target && !skipped_.contains(result)) return i;
    }
    return kNowhere;
  }

  std::optional<RowShape> ShapeOf(ValueIndex value, const Target& target) const {
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
    if (WidthOf(rows.dims) > kMostWidth) return std::nullopt;
    return rows;
  }

  // Gives each node its role, and each value its depth: what may be in one region has one odd depth, and what lies
  // between two regions an even one in between. So no region waits for itself.
  void GiveRoles(const Target& target) {
    roles_.assign(graph().nodes.size(), {});
    depth_.assign(graph().values.size(), 0);
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      const Node& node = graph().nodes[i];
      roles_[i] = RoleOf(node, target);
      const Role& role = roles_[i];
      int64_t most = 0;
      const auto after = [&](ValueIndex value, bool inside) {
        if (value != kNoValue) most = std::max(most, depth_[value] + (inside || depth_[value] % 2 == 0 ? 0 : 1));
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
      if ((most % 2 == 1) != odd) ++most;
      for (const Output& output : node.outputs)
        for (const ValueIndex value : output.values)
          if (value != kNoValue) depth_[value] = most;
    }
  }
  bool HasRole(ValueIndex value) const {
    return producer_[value] != kNowhere && roles_[producer_[value]].kind != Kind::kNone;
  }
  bool IsReduced(ValueIndex value) const { return producer_[value] != kNowhere && roles_[producer_[value]].reduced; }

  Role RoleOf(const Node& node, const Target& target) const {
    Role role;
    const ValueIndex result = ResultOf(node);
    if (result == kNoValue || IsWritten(result)) return role;
    const Meaning& meaning = MeaningOf(result);
    if (const auto& reduces = meaning.target) {
      const bool same = reduces->index == target.index && reduces->edges == target.edges &&
                        reduces->targets == target.targets && reduces->dtype == target.dtype;
      if (!same || skipped_.contains(result)) return role;
      role.reduce = *meaning.reduce;
      if (IsWritten(role.reduce.rows) || !ShapeOf(role.reduce.rows, target)) return role;
      role.kind = Kind::kReduce;
      role.reduced = true;
      return role;
    }
    const auto rows = ShapeOf(result, target);
    if (!rows || rows->level == RegionLevel::kShared) return role;
    if (meaning.gather) return RoleOfGather(*meaning.gather, *rows, target);
    return meaning.rows ? RoleOfRows(*meaning.rows, *rows, target) : role;
  }

  Role RoleOfGather(const GatherOperator& gather, const RowShape& rows, const Target& target) const {
    Role role{.gather = gather};
    if (rows.level != RegionLevel::kEdge || !IsIndex(gather.index) || IsWritten(gather.index)) return {};
    if (gather.table == kNoValue || IsWritten(gather.table) || !TypeOf(gather.table)) return {};
    if (gather.wraps && !IsEndOfEdges(equal_[gather.index])) return {};
    const TensorType& table = *TypeOf(gather.table);
    if (table.dtype != target.dtype || table.sizes.empty()) return {};
    Dims dims;
    for (size_t i = 1; i < table.sizes.size(); ++i) dims.push_back(table.sizes[i].number);
    if (dims != rows.dims) return {};
    role.reduced = true;
    role.kind = equal_[gather.index] == target.index && IsReduced(gather.table) && table.sizes[0] == target.targets
                    ? Kind::kExpand
                    : Kind::kGather;
    return role;
  }
  // The ends of edges that a step is passed are never negative.
  bool IsEndOfEdges(ValueIndex index) const {
    const size_t node = producer_[index];
    if (node == kNowhere || OperatorOf(graph().nodes[node]) != "aten::select") return false;
    const ValueIndex edges = ValueOf(graph().nodes[node], "self");
    return std::ranges::any_of(program_.inputs,
                               [&](const Input& input) { return input.value == edges && input.name == "edge_index"; });
  }

  Role RoleOfRows(const RowOperator& op, const RowShape& rows, const Target& target) const {
    Role role{.reduced = rows.level == RegionLevel::kEdge, .rows = op};
    const bool sums = !role.rows.steps.empty() && role.rows.steps[0].op == RegionOp::kRowSum;
    bool any = false;
    for (const auto& operand : role.rows.operands) {
      const auto* value = std::get_if<ValueIndex>(&operand);
      if (value == nullptr) continue;
      const auto of = ShapeOf(*value, target);
      if (!of || IsWritten(*value)) return {};
      // Masks come from the region itself.
      if (TypeOf(*value)->dtype == DType::kBool && !HasRole(*value)) return {};
      if (of->level != RegionLevel::kShared && of->level != rows.level) return {};
      any = any || of->level == rows.level;
      role.reduced = role.reduced || IsReduced(*value);
      if (sums) continue;
      if (role.rows.steps.empty() ? WidthOf(of->dims) != WidthOf(rows.dims) && !Repeats(of->dims, rows.dims)
                                  : !Repeats(of->dims, rows.dims))
        return {};
      // A row for each edge cannot be one column of a wider one.
      if (!role.rows.steps.empty() && of->level == rows.level && of->dims.size() != rows.dims.size()) return {};
    }
    if (any && role.reduced) role.kind = Kind::kRows;
    return role;
  }

  std::optional<Draft> MakeDraft(size_t reduction) {
    const Target target = *MeaningOf(ResultOf(graph().nodes[reduction])).target;
    GiveRoles(target);
    if (roles_[reduction].kind != Kind::kReduce) return std::nullopt;
    Draft draft{.target = target};
    const int64_t depth = depth_[ResultOf(graph().nodes[reduction])];
    const auto at_depth = [&](size_t node) { return depth_[ResultOf(graph().nodes[node])] == depth; };
    for (size_t i = 0; i < roles_.size(); ++i)
      if (roles_[i].kind == Kind::kReduce && at_depth(i)) Include(i, depth, draft);
    for (size_t before = 0; before != draft.nodes.size();) {
      before = draft.nodes.size();
      for (size_t i = 0; i < roles_.size(); ++i) {
        const Role& role = roles_[i];
        if (role.kind != Kind::kRows || !at_depth(i) || draft.nodes.contains(i)) continue;
        const auto inside = [&](ValueIndex value) {
          return producer_[value] != kNowhere && draft.nodes.contains(producer_[value]);
        };
        const std::vector<ValueIndex> inputs = InputsOf(graph().nodes[i]);
        if (std::ranges::any_of(inputs, inside)) Include(i, depth, draft);
      }
    }
    return AddSteps(draft) && AddOutputs(draft) ? std::optional(std::move(draft)) : std::nullopt;
  }

  // Puts a node into the region, and the nodes of its depth that it takes its operands from. RowShape that others
  // gather are gathered anew.
  void Include(size_t node, int64_t depth, Draft& draft) {
    const Role& role = roles_[node];
    const bool is_below = depth_[ResultOf(graph().nodes[node])] < depth;
    if (role.kind == Kind::kGather || (role.kind == Kind::kExpand && is_below)) {
      draft.copied.insert(node);
      return;
    }
    if (!draft.nodes.insert(node).second) return;
    const auto take = [&](ValueIndex value) {
      const size_t from = producer_[value];
      if (from == kNowhere || roles_[from].kind == Kind::kNone) return;
      const bool gathers = roles_[from].kind == Kind::kGather || roles_[from].kind == Kind::kExpand;
      if (gathers || depth_[value] == depth) Include(from, depth, draft);
    };
    if (role.kind == Kind::kReduce) take(role.reduce.rows);
    if (role.kind == Kind::kExpand) take(role.gather.table);
    if (role.kind == Kind::kRows) {
      for (const auto& operand : role.rows.operands)
        if (const auto* value = std::get_if<ValueIndex>(&operand)) take(*value);
    }
  }

  // Steps of the region, from values that are inputs or that its nodes make.
  bool AddSteps(Draft& draft) {
    steps_.clear();
    std::set<size_t> order = draft.nodes;
    order.insert(draft.copied.begin(), draft.copied.end());
    for (const size_t i : order) {
      const Role& role = roles_[i];
      const ValueIndex result = ResultOf(graph().nodes[i]);
      if (draft.copied.contains(i)) {
        steps_[result] = AddGather(role.gather, draft);
      } else if (role.kind == Kind::kExpand) {
        const int32_t table = StepOf(role.gather.table, draft);
        steps_[result] = Add({.op = RegionOp::kExpand, .a = table, .level = RegionLevel::kEdge}, draft);
      } else if (role.kind == Kind::kReduce) {
        steps_[result] = AddReduce(role.reduce, draft);
      } else {
        steps_[result] = AddRows(role.rows, ShapeOf(result, draft.target)->level, draft);
      }
    }
    return draft.region.steps.size() <= kMostSteps;
  }

  // The width of a step that is not told is the largest of its operands.
  int32_t Add(RegionStep step, Draft& draft) {
    std::vector<RegionStep>& steps = draft.region.steps;
    if (step.a >= 0 && step.op != RegionOp::kRowSum) {
      for (const int32_t operand : {step.a, step.b, step.c})
        if (operand >= 0) step.width = std::max(step.width, steps[operand].width);
    }
    const auto found = std::ranges::find(steps, step);
    if (found != steps.end()) return static_cast<int32_t>(found - steps.begin());
    steps.push_back(step);
    return static_cast<int32_t>(steps.size()) - 1;
  }
  // A value that is read in two ways is two inputs.
  int32_t AddInput(ValueIndex value, RegionStep step, const Dims& dims, Draft& draft) {
    step.width = static_cast<int32_t>(WidthOf(dims));
    for (size_t i = 0; i < draft.inputs.size(); ++i) {
      step.input = static_cast<int32_t>(i);
      const auto found = std::ranges::find(draft.region.steps, step);
      if (draft.inputs[i] == value && found != draft.region.steps.end())
        return static_cast<int32_t>(found - draft.region.steps.begin());
    }
    step.input = static_cast<int32_t>(draft.inputs.size());
    draft.inputs.push_back(value);
    return Add(step, draft);
  }

  int32_t StepOf(ValueIndex value, Draft& draft) {
    const size_t from = producer_[value];
    if (from != kNowhere && (draft.nodes.contains(from) || draft.copied.contains(from))) return steps_.at(value);
    const RowShape rows = *ShapeOf(value, draft.target);
    const RegionOp op = rows.level == RegionLevel::kEdge     ? RegionOp::kEdge
                        : rows.level == RegionLevel::kTarget ? RegionOp::kTarget
                                                             : RegionOp::kShared;
    return AddInput(value, {.op = op, .level = rows.level}, rows.dims, draft);
  }

  int32_t AddGather(const GatherOperator& gather, Draft& draft) {
    const TensorType& table = *TypeOf(gather.table);
    Dims dims;
    for (size_t i = 1; i < table.sizes.size(); ++i) dims.push_back(table.sizes[i].number);
    const ValueIndex index = equal_[gather.index];
    if (index == draft.target.index && table.sizes[0] == draft.target.targets) {
      const int32_t row = AddInput(gather.table, {.op = RegionOp::kTarget, .level = RegionLevel::kTarget}, dims, draft);
      return Add({.op = RegionOp::kExpand, .a = row, .level = RegionLevel::kEdge}, draft);
    }
    const std::pair<ValueIndex, Size> by{index, table.sizes[0]};
    auto found = std::ranges::find(draft.indices, by);
    if (found == draft.indices.end()) found = draft.indices.insert(draft.indices.end(), by);
    const auto place = static_cast<int32_t>(found - draft.indices.begin());
    return AddInput(gather.table, {.op = RegionOp::kGather, .index = place, .level = RegionLevel::kEdge}, dims, draft);
  }

  int32_t AddReduce(const ReduceOperator& reduce, Draft& draft) {
    const size_t from = producer_[reduce.rows];
    const auto fill = from == kNowhere ? std::nullopt : FillOperatorOf(graph().nodes[from]);
    if (fill && fill->number == 1 && reduce.op == RegionOp::kSum)
      return Add({.op = RegionOp::kCount, .level = RegionLevel::kTarget}, draft);
    return Add({.op = reduce.op, .a = StepOf(reduce.rows, draft), .level = RegionLevel::kTarget}, draft);
  }

  int32_t AddRows(const RowOperator& op, RegionLevel level, Draft& draft) {
    std::vector<int32_t> places;
    for (const auto& operand : op.operands) {
      const auto* value = std::get_if<ValueIndex>(&operand);
      places.push_back(value != nullptr ? StepOf(*value, draft)
                                        : Add({.op = RegionOp::kConstant, .x = std::get<double>(operand)}, draft));
    }
    int32_t last = places[0];
    for (RegionStep step : op.steps) {
      for (int32_t* const operand : {&step.a, &step.b, &step.c}) {
        if (*operand >= 0) *operand = places[*operand];
        if (*operand == RowOperator::kPrevious) *operand = last;
      }
      step.level = level;
      if (step.op == RegionOp::kRowSum) {
        const auto* summed = std::get_if<ValueIndex>(&op.operands[0]);
        step.a = Full(*summed, step.a, level, draft);
        step.width = draft.region.steps[step.a].width / step.group;
      }
      last = Add(step, draft);
    }
    return last;
  }

  // A value whose step has fewer columns, each of which stands for several, in full.
  int32_t Full(ValueIndex value, int32_t step, RegionLevel level, Draft& draft) {
    const auto width = static_cast<int32_t>(WidthOf(ShapeOf(value, draft.target)->dims));
    if (draft.region.steps[step].width == width) return step;
    return Add({.op = RegionOp::kScale, .a = step, .width = width, .x = 1, .level = level}, draft);
  }

  // Whether a node has no effect but results, and none of them is wanted any more. An index may stand for others that
  // equal it.
  bool IsOrphaned(const Node& node, const std::set<ValueIndex>& wanted) const {
    if (IsIndex(ResultOf(node))) return false;
    if (node.outputs.empty() || WritesInPlace(node) || FindOperator(node.target) != OperatorKind::kTensor) return false;
    return std::ranges::all_of(node.outputs, [&](const Output& output) {
      return std::ranges::all_of(output.values,
                                 [&](ValueIndex value) { return value != kNoValue && !wanted.contains(value); });
    });
  }

  // What others use of the values that the region's nodes make. Nodes that only these used, as views of indices, fall
  // away with them.
  bool AddOutputs(Draft& draft) {
    std::set<ValueIndex> wanted(graph().outputs.begin(), graph().outputs.end());
    wanted.insert(draft.inputs.begin(), draft.inputs.end());
    wanted.insert(draft.target.index);
    for (const auto& index : draft.indices) wanted.insert(index.first);
    for (size_t i = graph().nodes.size(); i-- > 0;) {
      if (draft.nodes.contains(i)) continue;
      if (IsOrphaned(graph().nodes[i], wanted)) {
        draft.orphaned.insert(i);
        continue;
      }
      const std::vector<ValueIndex> inputs = ValuesOf(graph().nodes[i]);
      wanted.insert(inputs.begin(), inputs.end());
    }
    for (const size_t i : draft.nodes) {
      const ValueIndex result = ResultOf(graph().nodes[i]);
      if (!wanted.contains(result)) continue;
      if (TypeOf(result)->dtype == DType::kBool) return false;
      draft.outputs.push_back(result);
      draft.region.outputs.push_back(Full(result, steps_.at(result), ShapeOf(result, draft.target)->level, draft));
    }
    draft.region.num_inputs = static_cast<int32_t>(draft.inputs.size());
    draft.region.num_indices = static_cast<int32_t>(draft.indices.size());
    return !draft.outputs.empty() && !draft.inputs.empty();
  }

  void Skip(const Draft& draft) {
    for (const size_t node : draft.nodes)
      if (roles_[node].kind == Kind::kReduce) skipped_.insert(ResultOf(graph().nodes[node]));
  }

  // Puts the region's operator behind what it takes, and drops its nodes. Returns false, and does nothing, where a node
  // before that reads what the region makes.
  bool Replace(const Draft& draft) {
    const size_t first =
        *std::ranges::find_if(draft.nodes, [&](size_t node) { return roles_[node].kind == Kind::kReduce; });
    const std::string source = graph().nodes[first].source;
    const Argument targets = FirstSizeOf(graph().nodes[producer_[roles_[first].reduce.zeros]]);
    if (std::holds_alternative<None>(targets)) return false;
    size_t begin = 0;  // the operator stands before this node
    const auto need = [&](ValueIndex value) {
      if (producer_[value] != kNowhere) begin = std::max(begin, producer_[value] + 1);
    };
    for (const ValueIndex input : draft.inputs) need(input);
    if (const auto* ref = std::get_if<Ref>(&targets)) need(ref->value);
    std::vector<IndexKey> keys = {{draft.target.index, draft.target.targets}};
    keys.insert(keys.end(), draft.indices.begin(), draft.indices.end());
    for (const IndexKey& key : keys) {
      need(key.first);
      if (const Segments* made = SegmentsOf(key)) need(made->places);
    }
    for (size_t i = 0; i < begin; ++i) {
      if (draft.nodes.contains(i) || draft.orphaned.contains(i)) continue;
      const std::vector<ValueIndex> inputs = ValuesOf(graph().nodes[i]);
      if (std::ranges::find_first_of(inputs, draft.outputs) != inputs.end()) return false;
    }
    Tell(draft);
    std::vector<Node> added = MakeNodes(draft, targets, source), nodes;
    nodes.reserve(graph().nodes.size() + added.size());
    for (size_t i = 0; i <= graph().nodes.size(); ++i) {
      if (i == begin) std::ranges::move(added, std::back_inserter(nodes));
      const bool stays = i < graph().nodes.size() && !draft.nodes.contains(i) && !draft.orphaned.contains(i);
      if (stays) nodes.push_back(std::move(graph().nodes[i]));
    }
    graph().nodes = std::move(nodes);
    for (const ValueIndex output : draft.outputs) meaning_[output] = {};
    return true;
  }

  // An index, and how many rows its values name.
  using IndexKey = std::pair<ValueIndex, Size>;
  // An index's places in the order of its rows, made once for all regions that read it.
  struct Segments {
    IndexKey of;
    ValueIndex offsets = kNoValue, places = kNoValue;
  };
  const Segments* SegmentsOf(const IndexKey& key) const {
    const auto found = std::ranges::find_if(segments_, [&](const Segments& made) { return made.of == key; });
    return found == segments_.end() ? nullptr : &*found;
  }

  // The first size that a fill is given; None: it has none.
  static Argument FirstSizeOf(const Node& fill) {
    const Argument* size = FillOperatorOf(fill)->size;
    const auto* sizes = size == nullptr ? nullptr : std::get_if<Ints>(size);
    if (sizes == nullptr || sizes->values.empty()) return None{};
    if (const auto* number = std::get_if<int64_t>(&sizes->values[0])) return *number;
    return std::get<Ref>(sizes->values[0]);
  }

  ValueIndex NewValue(const std::string& name, ValueKind kind, std::optional<TensorType> type = std::nullopt) {
    equal_.push_back(static_cast<ValueIndex>(graph().values.size()));
    graph().values.push_back(
        {.name = absl::StrCat(name, "_", graph().values.size()), .kind = kind, .type = std::move(type)});
    return static_cast<ValueIndex>(graph().values.size()) - 1;
  }

  // The nodes that run the region. May move graph().values.
  std::vector<Node> MakeNodes(const Draft& draft, const Argument& targets, const std::string& source) {
    std::vector<Node> nodes;
    const auto add = [&](const std::string& target, std::vector<NamedArgument> inputs, std::vector<Output> outputs) {
      nodes.push_back({.name = absl::StrCat("edge_region_", found_.size()),
                       .target = target,
                       .inputs = std::move(inputs),
                       .outputs = std::move(outputs),
                       .source = source});
    };
    const auto segments = [&](const IndexKey& key, const Argument& rows) {
      if (const Segments* made = SegmentsOf(key)) return *made;
      segments_.push_back({.of = key,
                           .offsets = NewValue("offsets", ValueKind::kTensor),
                           .places = NewValue("places", ValueKind::kTensor)});
      const Segments& made = segments_.back();
      add("torch.ops.permafrost.segments_of.default", {{"index", Ref{key.first}}, {"rows", rows}},
          {{.values = {made.offsets}}, {.values = {made.places}}});
      return made;
    };
    const Segments by_target = segments({draft.target.index, draft.target.targets}, targets);
    Refs indices, offsets, places;
    for (size_t k = 0; k < draft.indices.size(); ++k) {
      const IndexKey& key = draft.indices[k];
      indices.values.push_back(key.first);
      const bool small = key.second.expression.empty() && key.second.number <= kFewRows;
      if (!differentiated_ || small) {
        offsets.values.push_back(kNoValue);
        places.values.push_back(kNoValue);
        continue;
      }
      Argument rows = key.second.number;
      if (!key.second.expression.empty() && SegmentsOf(key) == nullptr) {
        const ValueIndex size = NewValue("rows", ValueKind::kInt);
        add("torch.ops.aten.sym_size.int", {{"self", Ref{TableOf(draft, k)}}, {"dim", int64_t{0}}},
            {{.values = {size}}});
        rows = Ref{size};
      }
      const Segments made = segments(key, rows);
      offsets.values.push_back(made.offsets);
      places.values.push_back(made.places);
    }
    Output outputs{.values = {}, .is_list = true};
    std::vector<std::pair<ValueIndex, ValueIndex>> reshaped;  // an output, and what it is a view of
    for (size_t i = 0; i < draft.outputs.size(); ++i) {
      const TensorType type = *graph().values[draft.outputs[i]].type;
      const bool as_it_is = type.sizes.size() == 2;
      const int64_t width = draft.region.steps[draft.region.outputs[i]].width;
      outputs.values.push_back(as_it_is ? draft.outputs[i]
                                        : NewValue("rows", ValueKind::kTensor,
                                                   TensorType{.dtype = type.dtype,
                                                              .sizes = {type.sizes[0], {.number = width}},
                                                              .requires_grad = type.requires_grad}));
      if (!as_it_is) reshaped.emplace_back(draft.outputs[i], outputs.values.back());
    }
    const nn::EncodedRegion encoded = nn::Encode(draft.region);
    Ints code;
    code.values.assign(encoded.code.begin(), encoded.code.end());
    add("torch.ops.permafrost.edge_region.default",
        {{"inputs", Refs{draft.inputs}},
         {"offsets", Ref{by_target.offsets}},
         {"places", Ref{by_target.places}},
         {"indices", std::move(indices)},
         {"index_offsets", std::move(offsets)},
         {"index_places", std::move(places)},
         {"code", std::move(code)},
         {"numbers", encoded.numbers}},
        {std::move(outputs)});
    for (const auto& [value, of] : reshaped) {
      Ints size;
      size.values.emplace_back(int64_t{-1});
      const std::vector<Size>& sizes = graph().values[value].type->sizes;
      for (size_t i = 1; i < sizes.size(); ++i) size.values.emplace_back(sizes[i].number);
      add("torch.ops.aten.view.default", {{"self", Ref{of}}, {"size", std::move(size)}}, {{.values = {value}}});
    }
    return nodes;
  }
  // A table that the region reads by its k-th index.
  static ValueIndex TableOf(const Draft& draft, size_t k) {
    const auto reads = [&](const RegionStep& step) { return step.index == static_cast<int32_t>(k); };
    return draft.inputs[std::ranges::find_if(draft.region.steps, reads)->input];
  }

  void Tell(const Draft& draft) {
    FoundRegion& found = found_.emplace_back();
    found.region = draft.region;
    for (const size_t i : draft.nodes) {
      const Node& node = graph().nodes[i];
      found.nodes.push_back(node.name);
      if (!node.source.empty() && std::ranges::find(found.sources, node.source) == found.sources.end())
        found.sources.push_back(node.source);
    }
  }

  const Program& original_;
  Program program_;
  const bool differentiated_;
  std::optional<SharedMemory> memory_;
  size_t known_values_ = 0;              // that there are at first
  std::vector<Meaning> meaning_;         // of the node whose result a value is
  std::vector<size_t> producer_;         // the node that makes a value; kNowhere: an input
  std::vector<ValueIndex> equal_;        // the first value that is the same index
  std::vector<Role> roles_;              // by node, for one target
  std::vector<int64_t> depth_;           // by value, for one target
  std::map<ValueIndex, int32_t> steps_;  // of the draft
  std::vector<Segments> segments_;
  std::set<ValueIndex> skipped_;  // results of reductions that stay as they are
  std::vector<FoundRegion> found_;
};

}  // namespace

std::optional<FusedProgram> WithEdgeRegions(const Program& program, bool differentiated) {
  return Finder(program, differentiated).Run();
}

}  // namespace permafrost::program
