#include "program/rewritings.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "program/aliases.h"
#include "program/node_writer.h"
#include "program/operators.h"
#include "program/program.h"
#include "program/region_roles.h"

namespace permafrost::program {
namespace {

using nn::RegionLevel;
using nn::RegionOp;
using nn::RegionStep;

// A region that is being built from the nodes of a program.
struct RegionDraft {
  ReductionTarget target;
  std::set<size_t> nodes;     // the nodes that the region replaces
  std::set<size_t> copied;    // gathers that the region repeats; their nodes stay
  std::set<size_t> orphaned;  // other nodes whose results the region makes unused
  nn::EdgeRegion region;
  std::vector<ValueIndex> inputs;
  std::vector<std::pair<ValueIndex, Size>> indices;  // (an index, the number of rows of the tables it indexes)
  std::vector<ValueIndex> outputs;                   // values of the program that the region computes
};

constexpr size_t kMostSteps = 200, kMostRegionNodes = 800;
constexpr int kMostPasses = 16;

class Drafter {
 public:
  Drafter(const Graph& graph, const RegionRoles& roles, const ReductionTarget& target, size_t node)
      : graph_(graph), roles_(roles), first_(node), depth_(roles.Depth(ResultOf(graph.nodes[node]))) {
    draft_.target = target;
  }

  // Makes the draft. If `takes_over` is true, the draft also includes nodes before the region whose results only the
  // region reads.
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

  // Includes a node, and the nodes of the region's depth that make its operands. If a gather outside the region makes
  // an operand, the region does the gather again.
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

  // Includes nodes that compute a row for each target, such as a factor, if only this region reads their results.
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

  // Adds the steps of the region. They read inputs, or values that nodes of the region make.
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

  // Adds `step`, unless the region has an equal one, and returns its index. A step with operands becomes at least as
  // wide as its widest operand.
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
  // Adds an input. If steps read a value in two ways, it becomes two inputs.
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
    // A mask from outside the region cannot be an input.
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

  // Returns a step that holds the value in its full width. `step` may have fewer columns than the value, if each of
  // its columns stands for several equal ones.
  int32_t Full(ValueIndex value, int32_t step, RegionLevel level) {
    const auto width = static_cast<int32_t>(WidthOf(roles_.ShapeOf(value, draft_.target)->dims));
    if (draft_.region.steps[step].width == width) return step;
    return Add({.op = RegionOp::kScale, .a = step, .width = width, .x = 1, .level = level});
  }

  // Returns true if the node has no effect and its results are no longer needed. A norm stays, since it may write to
  // its running statistics. An index stays, since it may stand for other indices that are equal to it.
  bool IsOrphaned(const Node& node, const std::set<ValueIndex>& wanted) const {
    const std::string name = OperatorOf(node);
    if (roles_.IsIndex(ResultOf(node)) || name == "aten::batch_norm" || name == "aten::instance_norm") return false;
    if (node.outputs.empty() || WritesInPlace(node) || FindOperator(node.target) != OperatorKind::kTensor) return false;
    return std::ranges::all_of(node.outputs, [&](const Output& output) {
      return std::ranges::all_of(output.values,
                                 [&](ValueIndex value) { return value != kNoValue && !wanted.contains(value); });
    });
  }

  // Finds the values of the region that nodes outside it use. Nodes whose results only the region used, such as views
  // of indices, become orphaned.
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
  std::set<ValueIndex> read_;  // values that the region's nodes read, except for tables of gathers
  std::map<ValueIndex, int32_t> steps_;
};

// Returns the region of a reduction: all reductions of its depth, and the nodes of this depth before or after them in
// the data flow. `roles` must be the roles computed for the reduction's target. Returns nullopt if the reduction has
// no role, if the region is too large, or if a mask crosses the region's border.
std::optional<RegionDraft> MakeDraft(const Graph& graph, const RegionRoles& roles, size_t reduction) {
  if (roles.Role(reduction).kind != RegionRole::Kind::kReduce) return std::nullopt;
  const ReductionTarget& target = *roles.TargetOf(ResultOf(graph.nodes[reduction]));
  // With the nodes that it takes over, the region may exceed its limits. It is then drafted without them.
  auto draft = Drafter(graph, roles, target, reduction).Run(/*takes_over=*/true);
  if (draft) return draft;
  return Drafter(graph, roles, target, reduction).Run(/*takes_over=*/false);
}

// Returns a region without edges: `node`, whose role must be kRows, and the nodes of the same depth that are
// connected to it. `roles` must be the roles computed for `target`, and `target` must have no index. Returns nullopt
// if the region exceeds MakeDraft's limits.
std::optional<RegionDraft> MakeRowDraft(const Graph& graph, const RegionRoles& roles, const ReductionTarget& target,
                                        size_t node) {
  return Drafter(graph, roles, target, node).Run(/*takes_over=*/false);
}

// Programs with more than kMostNodes nodes are not rewritten, since the search for each region visits all nodes.
constexpr size_t kMostNodes = 10'000, kMostDrafts = 512;
// The least number of steps that compute (and do not only read) for which a region without edges is made. Fewer
// operators run faster by themselves.
constexpr int64_t kLeastRowSteps = 4;

class Finder {
 public:
  Finder(const Program& program, bool differentiated)
      : original_(program), program_(program), differentiated_(differentiated) {}

  std::optional<FusedProgram> Run() {
    if (graph().nodes.size() > kMostNodes) return std::nullopt;
    Normalize();
    roles_.emplace(graph(), program_.inputs);
    for (size_t drafts = 0; drafts < kMostDrafts; ++drafts) {
      roles_->FindProducers();
      const size_t node = NextReduction();
      if (node == kNoNode) break;
      roles_->GiveRoles(*roles_->TargetOf(ResultOf(graph().nodes[node])), skipped_);
      if (const std::optional<RegionDraft> draft = MakeDraft(graph(), *roles_, node)) {
        if (!Replace(*draft)) Skip(*draft);
      } else {
        SkipDepthOf(node);
      }
    }
    if (found_.empty()) {
      program_ = original_;  // no region was found: undo Normalize
      roles_.emplace(graph(), program_.inputs);
    }
    FuseRows();
    if (found_.empty()) return std::nullopt;
    RemoveOrphans(original_, program_);
    return FusedProgram{.program = std::move(program_), .regions = std::move(found_)};
  }

 private:
  using Kind = RegionRole::Kind;

  Graph& graph() { return program_.graph; }
  const Graph& graph() const { return program_.graph; }
  const std::optional<TensorType>& TypeOf(ValueIndex value) const { return graph().values[value].type; }

  // Makes a fill take its type from a parameter or buffer of that type to which nothing writes, if there is one. The
  // fill then depends on no computed value. Makes an in-place reduction out of place if nothing else uses its memory.
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

  size_t NextReduction() const {
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      const ValueIndex result = ResultOf(graph().nodes[i]);
      if (result != kNoValue && roles_->TargetOf(result) != nullptr && !skipped_.contains(result)) return i;
    }
    return kNoNode;
  }

  // Fuses RowOperators on tensors that have one row per node, per graph or per edge.
  void FuseRows() {
    std::set<ValueIndex> tried;
    roles_->FindProducers();
    while (const std::optional<RegionDraft> draft = NextRows(tried)) {
      for (const size_t i : draft->nodes) tried.insert(ResultOf(graph().nodes[i]));
      const auto computes = [](const RegionStep& step) { return nn::TraitsOf(step.op).operands > 0; };
      if (std::ranges::count_if(draft->region.steps, computes) < kLeastRowSteps || !Replace(*draft)) continue;
      roles_->FindProducers();
    }
  }
  // Returns the region of the first node outside `tried` that has a region. Returns nullopt if no node has one, or
  // after kMostDrafts searches.
  std::optional<RegionDraft> NextRows(std::set<ValueIndex>& tried) {
    const std::vector<Node>& nodes = graph().nodes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const std::optional<ReductionTarget> target = RowsToTry(nodes[i], tried);
      if (!target) continue;
      if (++row_searches_ > kMostDrafts) break;
      roles_->GiveRoles(*target, skipped_);
      for (size_t j = i; j < nodes.size(); ++j) {
        if (RowsToTry(nodes[j], tried) != target) continue;
        if (roles_->Role(j).kind == Kind::kRows) {
          if (++row_searches_ > kMostDrafts) return std::nullopt;
          if (auto draft = MakeRowDraft(graph(), *roles_, *target, j)) return draft;
        }
        tried.insert(ResultOf(nodes[j]));
      }
    }
    return std::nullopt;
  }
  std::optional<ReductionTarget> RowsToTry(const Node& node, const std::set<ValueIndex>& tried) const {
    const ValueIndex result = ResultOf(node);
    return result == kNoValue || tried.contains(result) ? std::nullopt : RowsOf(result);
  }
  std::optional<ReductionTarget> RowsOf(ValueIndex value) const {
    const std::optional<TensorType>& type = TypeOf(value);
    if (!type || !IsReal(type->dtype) || type->sizes.empty() || type->sizes[0].expression.empty()) return std::nullopt;
    return ReductionTarget{.index = kNoValue, .edges = {.number = -1}, .targets = type->sizes[0], .dtype = type->dtype};
  }

  // Skips this reduction and all other reductions of its depth, since one region would hold them all.
  void SkipDepthOf(size_t reduction) {
    const ValueIndex result = ResultOf(graph().nodes[reduction]);
    skipped_.insert(result);
    for (size_t i = 0; i < graph().nodes.size(); ++i) {
      const ValueIndex other = ResultOf(graph().nodes[i]);
      if (roles_->Role(i).kind == Kind::kReduce && roles_->Depth(other) == roles_->Depth(result))
        skipped_.insert(other);
    }
  }
  void Skip(const RegionDraft& draft) {
    for (const size_t node : draft.nodes)
      if (roles_->Role(node).kind == Kind::kReduce) skipped_.insert(ResultOf(graph().nodes[node]));
  }

  // Replaces the region's nodes by its operator, inserted right after the node that makes the operator's last input.
  // If the number of targets is unknown, or a node before that place reads an output, returns false and changes
  // nothing.
  bool Replace(const RegionDraft& draft) {
    const bool has_edges = draft.target.index != kNoValue;
    const Argument targets = has_edges ? TargetsOf(draft) : Argument(None());
    if (has_edges && std::holds_alternative<None>(targets)) return false;
    size_t begin = 0;  // the operator is inserted before this node
    const auto need = [&](ValueIndex value) {
      if (roles_->Producer(value) != kNoNode) begin = std::max(begin, roles_->Producer(value) + 1);
    };
    for (const ValueIndex input : draft.inputs) need(input);
    if (const auto* ref = std::get_if<Ref>(&targets)) need(ref->value);
    std::vector<IndexKey> keys;
    if (has_edges) keys.emplace_back(draft.target.index, draft.target.targets);
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
    std::vector<Node> added = MakeNodes(draft, targets, JoinedLines(found_.back().sources)), nodes;
    nodes.reserve(graph().nodes.size() + added.size());
    for (size_t i = 0; i <= graph().nodes.size(); ++i) {
      if (i == begin) std::ranges::move(added, std::back_inserter(nodes));
      const bool stays = i < graph().nodes.size() && !draft.nodes.contains(i) && !draft.orphaned.contains(i);
      if (stays) nodes.push_back(std::move(graph().nodes[i]));
    }
    graph().nodes = std::move(nodes);
    for (const ValueIndex output : draft.outputs) roles_->Forget(output);
    return true;
  }

  // An index, and the number of rows of the tables that it indexes.
  using IndexKey = std::pair<ValueIndex, Size>;
  // The positions in an index, sorted by the row that they refer to. They are computed once for all regions that read
  // the index.
  struct Segments {
    IndexKey of;
    ValueIndex offsets = kNoValue, places = kNoValue;
  };
  const Segments* SegmentsOf(const IndexKey& key) const {
    const auto found = std::ranges::find_if(segments_, [&](const Segments& made) { return made.of == key; });
    return found == segments_.end() ? nullptr : &*found;
  }

  // Returns the number of targets of the region's first reduction.
  Argument TargetsOf(const RegionDraft& draft) const {
    const size_t first =
        *std::ranges::find_if(draft.nodes, [&](size_t node) { return roles_->Role(node).kind == Kind::kReduce; });
    return FirstSizeOf(graph().nodes[roles_->Producer(roles_->Role(first).reduce.zeros)]);
  }
  // Returns the first size in a fill's argument of sizes; None if the fill has no such argument.
  static Argument FirstSizeOf(const Node& fill) {
    const Argument* size = FillOperatorOf(fill)->size;
    const auto* sizes = size == nullptr ? nullptr : std::get_if<Ints>(size);
    if (sizes == nullptr || sizes->values.empty()) return None{};
    if (const auto* number = std::get_if<int64_t>(&sizes->values[0])) return *number;
    return std::get<Ref>(sizes->values[0]);
  }

  ValueIndex NewValue(const std::string& name, ValueKind kind, std::optional<TensorType> type = std::nullopt) {
    roles_->AddValue();
    graph().values.push_back(
        {.name = absl::StrCat(name, "_", graph().values.size()), .kind = kind, .type = std::move(type)});
    return static_cast<ValueIndex>(graph().values.size()) - 1;
  }

  // Returns the nodes that run the region. May reallocate graph().values.
  std::vector<Node> MakeNodes(const RegionDraft& draft, const Argument& targets, const std::string& source) {
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
    std::optional<Segments> by_target;
    if (draft.target.index != kNoValue) {
      by_target = segments({draft.target.index, draft.target.targets}, targets);
    }
    Refs indices, offsets, places;
    for (size_t k = 0; k < draft.indices.size(); ++k) {
      const IndexKey& key = draft.indices[k];
      indices.values.push_back(key.first);
      if (!differentiated_ || ReadsSmallTables(draft, k)) {
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
    std::vector<std::pair<ValueIndex, ValueIndex>> reshaped;  // (an output, the value that becomes a view of it)
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
    if (by_target) {
      add("torch.ops.permafrost.edge_region.default",
          {{"inputs", Refs{draft.inputs}},
           {"offsets", Ref{by_target->offsets}},
           {"places", Ref{by_target->places}},
           {"indices", std::move(indices)},
           {"index_offsets", std::move(offsets)},
           {"index_places", std::move(places)},
           {"code", std::move(code)},
           {"numbers", encoded.numbers}},
          {std::move(outputs)});
    } else {
      add("torch.ops.permafrost.row_region.default",
          {{"inputs", Refs{draft.inputs}}, {"code", std::move(code)}, {"numbers", encoded.numbers}},
          {std::move(outputs)});
    }
    for (const auto& [value, of] : reshaped) {
      Ints size;
      size.values.emplace_back(int64_t{-1});
      const std::vector<Size>& sizes = graph().values[value].type->sizes;
      for (size_t i = 1; i < sizes.size(); ++i) size.values.emplace_back(sizes[i].number);
      add("torch.ops.aten.view.default", {{"self", Ref{of}}, {"size", std::move(size)}}, {{.values = {value}}});
    }
    return nodes;
  }
  // Returns true if all tables of the k-th index are small. Their gradients are then summed without the index's
  // Segments.
  static bool ReadsSmallTables(const RegionDraft& draft, size_t k) {
    const Size& rows = draft.indices[k].second;
    return rows.expression.empty() && std::ranges::all_of(draft.region.steps, [&](const RegionStep& step) {
             return step.index != static_cast<int32_t>(k) || rows.number <= nn::kSmallTableValues / step.width;
           });
  }
  // Returns a table that the region reads by its k-th index.
  static ValueIndex TableOf(const RegionDraft& draft, size_t k) {
    const auto reads = [&](const RegionStep& step) { return step.index == static_cast<int32_t>(k); };
    return draft.inputs[std::ranges::find_if(draft.region.steps, reads)->input];
  }

  void Tell(const RegionDraft& draft) {
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
  std::optional<RegionRoles> roles_;
  std::vector<Segments> segments_;
  std::set<ValueIndex> skipped_;  // results of reductions that are not fused
  std::vector<FoundRegion> found_;
  size_t row_searches_ = 0;  // number of searches by NextRows; each visits all nodes
};

}  // namespace

std::optional<FusedProgram> WithEdgeRegions(const Program& program, bool differentiated) {
  return Finder(program, differentiated).Run();
}

}  // namespace permafrost::program
