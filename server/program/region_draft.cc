#include "program/region_draft.h"

#include <algorithm>
#include <map>
#include <string>
#include <variant>

#include "program/aliases.h"
#include "program/node_access.h"
#include "program/operators.h"
#include "program/row_operators.h"

namespace permafrost::program {
namespace {

using nn::RegionLevel;
using nn::RegionOp;
using nn::RegionStep;

constexpr size_t kMostSteps = 200, kMostRegionNodes = 800;
constexpr int kMostPasses = 16;

class Drafter {
 public:
  Drafter(const Graph& graph, const RegionRoles& roles, const ReductionTarget& target, size_t node)
      : graph_(graph), roles_(roles), first_(node), depth_(roles.Depth(ResultOf(graph.nodes[node]))) {
    draft_.target = target;
  }

  // takes_over: also includes nodes before the region whose results it alone reads.
  std::optional<RegionDraft> Run(bool takes_over) {
    const auto at_depth = [&](size_t node) { return roles_.Depth(ResultOf(graph_.nodes[node])) == depth_; };
    Include(first_);
    for (size_t i = 0; i < roles_.num_nodes(); ++i)
      if (roles_.Role(i).kind == Kind::kReduce && at_depth(i)) Include(i);
    int passes = 0;
    for (size_t before = 0; before != draft_.nodes.size() && passes < kMostPasses; ++passes) {
      before = draft_.nodes.size();
      for (size_t i = 0; i < roles_.num_nodes(); ++i) {
        if (roles_.Role(i).kind != Kind::kRows || !at_depth(i) || draft_.nodes.contains(i)) continue;
        const auto inside = [&](ValueIndex value) {
          return roles_.Producer(value) != kNoNode && draft_.nodes.contains(roles_.Producer(value));
        };
        if (std::ranges::any_of(InputsOf(graph_.nodes[i]), inside)) Include(i);
      }
    }
    if (takes_over) TakeOver();
    return fits_ && AddSteps() && AddOutputs() ? std::optional(std::move(draft_)) : std::nullopt;
  }

 private:
  using Kind = RegionRole::Kind;

  // Puts a node into the region, and the nodes of its depth that it takes its operands from. Rows that others
  // gather are gathered anew.
  void Include(size_t node) {
    const RegionRole& role = roles_.Role(node);
    const bool is_below = roles_.Depth(ResultOf(graph_.nodes[node])) < depth_;
    if (role.kind == Kind::kGather || (role.kind == Kind::kExpand && is_below)) {
      draft_.copied.insert(node);
      return;
    }
    if (draft_.nodes.size() > kMostRegionNodes) fits_ = false;
    if (!fits_ || !draft_.nodes.insert(node).second) return;
    const auto take = [&](ValueIndex value) {
      read_.insert(value);
      const size_t from = roles_.Producer(value);
      if (from == kNoNode || roles_.Role(from).kind == Kind::kNone) return;
      const bool gathers = roles_.Role(from).kind == Kind::kGather || roles_.Role(from).kind == Kind::kExpand;
      if (gathers || roles_.Depth(value) == depth_) Include(from);
    };
    if (role.kind == Kind::kReduce) take(role.reduce.rows);
    if (role.kind == Kind::kExpand) take(role.gather.table);
    if (role.kind == Kind::kRows) {
      for (const auto& operand : role.rows.operands)
        if (const auto* value = std::get_if<ValueIndex>(&operand)) take(*value);
    }
  }

  // Includes nodes that work on rows of targets for this region alone, such as a factor of the target's own row.
  void TakeOver() {
    std::vector<char> used_elsewhere(graph_.values.size(), 0);
    const auto use = [&](ValueIndex value) {
      if (value != kNoValue) used_elsewhere[value] = 1;
    };
    for (const ValueIndex output : graph_.outputs) use(output);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      const Node& node = graph_.nodes[i];
      const ValueIndex result = ResultOf(node);
      if (roles_.Role(i).joins && read_.contains(result) && !used_elsewhere[result]) {
        draft_.nodes.insert(i);
        for (const auto& operand : roles_.Role(i).rows.operands)
          if (const auto* value = std::get_if<ValueIndex>(&operand)) read_.insert(*value);
      }
      if (!draft_.nodes.contains(i)) std::ranges::for_each(ValuesOf(node), use);
    }
  }

  // Steps of the region, from values that are inputs or that its nodes make.
  bool AddSteps() {
    steps_.clear();
    std::set<size_t> order = draft_.nodes;
    order.insert(draft_.copied.begin(), draft_.copied.end());
    for (const size_t i : order) {
      if (!fits_ || draft_.region.steps.size() > kMostSteps) return false;
      const RegionRole& role = roles_.Role(i);
      const ValueIndex result = ResultOf(graph_.nodes[i]);
      if (draft_.copied.contains(i)) {
        steps_[result] = AddGather(role.gather);
      } else if (role.kind == Kind::kExpand) {
        const int32_t table = StepOf(role.gather.table);
        steps_[result] = Add({.op = RegionOp::kExpand, .a = table, .level = RegionLevel::kEdge});
      } else if (role.kind == Kind::kReduce) {
        steps_[result] = AddReduce(role.reduce);
      } else {
        steps_[result] = AddRows(role.rows, roles_.ShapeOf(result, draft_.target)->level);
      }
    }
    return fits_ && draft_.region.steps.size() <= kMostSteps;
  }

  // The width of a step that is not told is the largest of its operands.
  int32_t Add(RegionStep step) {
    std::vector<RegionStep>& steps = draft_.region.steps;
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
  int32_t AddInput(ValueIndex value, RegionStep step, const Dims& dims) {
    step.width = static_cast<int32_t>(WidthOf(dims));
    for (size_t i = 0; i < draft_.inputs.size(); ++i) {
      if (draft_.inputs[i] != value) continue;
      step.input = static_cast<int32_t>(i);
      const auto found = std::ranges::find(draft_.region.steps, step);
      if (found != draft_.region.steps.end()) return static_cast<int32_t>(found - draft_.region.steps.begin());
    }
    step.input = static_cast<int32_t>(draft_.inputs.size());
    draft_.inputs.push_back(value);
    return Add(step);
  }

  int32_t StepOf(ValueIndex value) {
    const size_t from = roles_.Producer(value);
    if (from != kNoNode && (draft_.nodes.contains(from) || draft_.copied.contains(from))) return steps_.at(value);
    // A mask from elsewhere is no input.
    if (graph_.values[value].type->dtype == DType::kBool) fits_ = false;
    const RowShape rows = *roles_.ShapeOf(value, draft_.target);
    const RegionOp op = rows.level == RegionLevel::kEdge     ? RegionOp::kEdge
                        : rows.level == RegionLevel::kTarget ? RegionOp::kTarget
                                                             : RegionOp::kShared;
    return AddInput(value, {.op = op, .level = rows.level}, rows.dims);
  }

  int32_t AddGather(const GatherOperator& gather) {
    const TensorType& table = *graph_.values[gather.table].type;
    const Dims dims = DimsBehindRows(table);
    const ValueIndex index = roles_.Equal(gather.index);
    if (index == draft_.target.index && table.sizes[0] == draft_.target.targets) {
      const int32_t row = AddInput(gather.table, {.op = RegionOp::kTarget, .level = RegionLevel::kTarget}, dims);
      return Add({.op = RegionOp::kExpand, .a = row, .level = RegionLevel::kEdge});
    }
    const std::pair<ValueIndex, Size> by{index, table.sizes[0]};
    auto found = std::ranges::find(draft_.indices, by);
    if (found == draft_.indices.end()) found = draft_.indices.insert(draft_.indices.end(), by);
    const auto place = static_cast<int32_t>(found - draft_.indices.begin());
    return AddInput(gather.table, {.op = RegionOp::kGather, .index = place, .level = RegionLevel::kEdge}, dims);
  }

  int32_t AddReduce(const ReduceOperator& reduce) {
    const size_t from = roles_.Producer(reduce.rows);
    const auto fill = from == kNoNode ? std::nullopt : FillOperatorOf(graph_.nodes[from]);
    if (fill && fill->number == 1 && reduce.op == RegionOp::kSum)
      return Add({.op = RegionOp::kCount, .level = RegionLevel::kTarget});
    return Add({.op = reduce.op, .a = StepOf(reduce.rows), .level = RegionLevel::kTarget});
  }

  int32_t AddRows(const RowOperator& op, RegionLevel level) {
    std::vector<int32_t> places;
    for (const auto& operand : op.operands) {
      const auto* value = std::get_if<ValueIndex>(&operand);
      places.push_back(value != nullptr ? StepOf(*value)
                                        : Add({.op = RegionOp::kConstant, .x = std::get<double>(operand)}));
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
        step.a = Full(*summed, step.a, level);
        step.width = draft_.region.steps[step.a].width / step.group;
      }
      last = Add(step);
    }
    return last;
  }

  // A value whose step has fewer columns, each of which stands for several, in full.
  int32_t Full(ValueIndex value, int32_t step, RegionLevel level) {
    const auto width = static_cast<int32_t>(WidthOf(roles_.ShapeOf(value, draft_.target)->dims));
    if (draft_.region.steps[step].width == width) return step;
    return Add({.op = RegionOp::kScale, .a = step, .width = width, .x = 1, .level = level});
  }

  // Returns whether a node only computes results that nothing wants any more. A norm may write to its running
  // statistics, and an index may stand for others that equal it.
  bool IsOrphaned(const Node& node, const std::set<ValueIndex>& wanted) const {
    const std::string name = OperatorOf(node);
    if (roles_.IsIndex(ResultOf(node)) || name == "aten::batch_norm" || name == "aten::instance_norm") return false;
    if (node.outputs.empty() || WritesInPlace(node) || FindOperator(node.target) != OperatorKind::kTensor) return false;
    return std::ranges::all_of(node.outputs, [&](const Output& output) {
      return std::ranges::all_of(output.values,
                                 [&](ValueIndex value) { return value != kNoValue && !wanted.contains(value); });
    });
  }

  // Finds the region's values that other nodes use. Nodes that only the region used, such as views of indices, fall
  // away.
  bool AddOutputs() {
    std::set<ValueIndex> wanted(graph_.outputs.begin(), graph_.outputs.end());
    wanted.insert(draft_.inputs.begin(), draft_.inputs.end());
    wanted.insert(draft_.target.index);
    for (const auto& index : draft_.indices) wanted.insert(index.first);
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (draft_.nodes.contains(i)) continue;
      if (IsOrphaned(graph_.nodes[i], wanted)) {
        draft_.orphaned.insert(i);
        continue;
      }
      const std::vector<ValueIndex> inputs = ValuesOf(graph_.nodes[i]);
      wanted.insert(inputs.begin(), inputs.end());
    }
    for (const size_t i : draft_.nodes) {
      const ValueIndex result = ResultOf(graph_.nodes[i]);
      if (!wanted.contains(result)) continue;
      if (graph_.values[result].type->dtype == DType::kBool) return false;
      draft_.outputs.push_back(result);
      draft_.region.outputs.push_back(Full(result, steps_.at(result), roles_.ShapeOf(result, draft_.target)->level));
    }
    draft_.region.num_inputs = static_cast<int32_t>(draft_.inputs.size());
    draft_.region.num_indices = static_cast<int32_t>(draft_.indices.size());
    return !draft_.outputs.empty() && !draft_.inputs.empty();
  }

  const Graph& graph_;
  const RegionRoles& roles_;
  const size_t first_;  // a node of the region
  const int64_t depth_;
  RegionDraft draft_;
  bool fits_ = true;
  std::set<ValueIndex> read_;  // values that the region's nodes read, tables of gathers excepted
  std::map<ValueIndex, int32_t> steps_;
};

}  // namespace

std::optional<RegionDraft> MakeDraft(const Graph& graph, const RegionRoles& roles, size_t reduction) {
  if (roles.Role(reduction).kind != RegionRole::Kind::kReduce) return std::nullopt;
  const ReductionTarget& target = *roles.TargetOf(ResultOf(graph.nodes[reduction]));
  // Nodes taken over may exceed the limits of a region; then it is drafted without them.
  auto draft = Drafter(graph, roles, target, reduction).Run(/*takes_over=*/true);
  if (draft) return draft;
  return Drafter(graph, roles, target, reduction).Run(/*takes_over=*/false);
}

std::optional<RegionDraft> MakeRowDraft(const Graph& graph, const RegionRoles& roles, const ReductionTarget& target,
                                        size_t node) {
  return Drafter(graph, roles, target, node).Run(/*takes_over=*/false);
}

}  // namespace permafrost::program
