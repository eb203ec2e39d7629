#include "nn/kernels/edge_region_plan.h"

#include <algorithm>
#include <map>
#include <utility>

namespace permafrost::nn {
namespace {

// Returns true for steps without a register. Their rows are rows of an input, or nothing is computed for them.
bool IsInPlace(RegionOp op) { return op == RegionOp::kTarget || op == RegionOp::kDetach; }

// Marks the gathers and expansions that can be read without a copy, and the target inputs that are allowed gaps
// between their rows. A step is marked only if it is not an output, and only sums and elementwise steps of its own
// width read it.
std::vector<char> ReadByRow(const RegionPlan& plan) {
  const std::vector<RegionStep>& steps = plan.region.steps;
  std::vector<char> views(steps.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    const bool copies = steps[i].op == RegionOp::kGather || steps[i].op == RegionOp::kExpand;
    const bool is_wide = steps[i].width >= kLeastViewWidth || steps[i].op == RegionOp::kTarget;
    views[i] = (copies || steps[i].op == RegionOp::kTarget) && is_wide && plan.root[i] == static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    for (const int32_t o : steps[i].operands()) {
      if (o == -1 || steps[i].op == RegionOp::kSum) continue;
      const bool reads_rows = TraitsOf(steps[i].op).by_value && steps[static_cast<size_t>(o)].width == steps[i].width;
      if (!reads_rows) views[static_cast<size_t>(plan.root[static_cast<size_t>(o)])] = 0;
    }
  }
  for (const int32_t o : plan.region.outputs) views[static_cast<size_t>(plan.root[static_cast<size_t>(o)])] = 0;
  return views;
}

// For each marked root, also marks the roots of its operands.
void AddOperands(const RegionPlan& plan, std::vector<char>& marked) {
  for (size_t i = marked.size(); i-- > 0;) {
    if (!marked[i]) continue;
    for (const int32_t o : plan.region.steps[i].operands()) {
      if (o != -1) marked[static_cast<size_t>(plan.root[static_cast<size_t>(o)])] = 1;
    }
  }
}

// Returns, for each kSum step, the value that the sum computes for each edge. A sum computes the value of the step
// that it reads only if no other step needs that value. kept: steps whose values must stay in registers.
std::vector<SummedValue> FindSummed(const RegionPlan& plan, const std::vector<char>& wanted,
                                    const std::vector<char>& kept) {
  const std::vector<RegionStep>& steps = plan.region.steps;
  std::vector<int32_t> readers(steps.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (!wanted[i]) continue;
    for (const int32_t o : steps[i].operands()) {
      if (o != -1) ++readers[static_cast<size_t>(plan.root[static_cast<size_t>(o)])];
    }
  }
  const auto is_free = [&](int32_t i) {
    const auto at = static_cast<size_t>(i);
    return steps[at].level == RegionLevel::kEdge && steps[at].input == -1 && readers[at] == 1 && !kept[at];
  };
  const auto root_of = [&](int32_t i) { return plan.root[static_cast<size_t>(i)]; };
  const auto step_of = [&](int32_t i) -> const RegionStep& { return steps[static_cast<size_t>(i)]; };
  std::vector<SummedValue> summed(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    const int32_t width = steps[i].width;
    if (!wanted[i] || steps[i].op != RegionOp::kSum || width < kLeastViewWidth) continue;
    SummedValue value{.step = root_of(steps[i].a)};
    std::vector<int32_t> computed = {value.step};
    if (const RegionStep& outer = step_of(value.step); outer.op == RegionOp::kRelu) {
      value = {.step = root_of(outer.a), .relu = true};
      computed.push_back(value.step);
    } else if (outer.op == RegionOp::kWhere) {
      // where(a <= 0, 0, rows) is the gradient of ReLU.
      const RegionStep &zero = step_of(root_of(outer.a)), &mask = step_of(root_of(outer.c));
      const bool is_gradient = zero.op == RegionOp::kConstant && zero.x == 0 && mask.op == RegionOp::kLessEqual &&
                               mask.x == 0 && step_of(outer.b).width == width &&
                               step_of(outer.b).level == RegionLevel::kEdge;
      if (!is_gradient) continue;
      value = {.step = root_of(mask.a), .passed = root_of(outer.b)};
      computed.insert(computed.end(), {root_of(outer.c), value.step});
    }
    const bool fuses =
        std::ranges::all_of(computed, [&](int32_t step) { return is_free(step) && step_of(step).width == width; });
    const RegionStep& s = step_of(value.step);
    if (!fuses || (s.op != RegionOp::kAdd && s.op != RegionOp::kMul)) continue;
    if (value.passed != -1 && s.op != RegionOp::kAdd) continue;
    const int32_t a = step_of(s.a).width, b = step_of(s.b).width;
    const bool fits = a == s.width ? b == s.width || (s.op == RegionOp::kMul && TakesWidth(s, b))
                                   : s.op == RegionOp::kMul && b == s.width && TakesWidth(s, a);
    if (fits) summed[i] = value;
  }
  return summed;
}

// Calls visit(root) for each operand from which step `i` is computed. If step i is a sum that computes the summed
// value for each edge, visits the operands of that value.
template <class Visit>
void ForOperands(const RegionPlan& plan, const RegionPass& pass, size_t i, const Visit& visit) {
  const SummedValue& value = pass.summed[i];
  const RegionStep& s = plan.region.steps[value.step == -1 ? i : static_cast<size_t>(value.step)];
  for (const int32_t o : s.operands()) {
    if (o != -1) visit(plan.root[static_cast<size_t>(o)]);
  }
  if (value.passed != -1) visit(value.passed);
}

// Assigns registers. wanted: the roots to compute, operands included. kept: roots whose registers are never reused.
RegionPass Allocate(const RegionPlan& plan, std::vector<char> wanted, std::vector<char> kept,
                    RegionRegisters& registers) {
  const std::vector<RegionStep>& steps = plan.region.steps;
  RegionPass pass;
  pass.register_of.assign(steps.size(), -1);
  pass.summed = FindSummed(plan, wanted, kept);
  for (size_t i = 0; i < steps.size(); ++i) {
    const SummedValue& value = pass.summed[i];
    if (value.step == -1) continue;
    pass.summed_columns += steps[i].width;
    const auto outer = static_cast<size_t>(plan.root[static_cast<size_t>(steps[i].a)]);
    wanted[outer] = wanted[static_cast<size_t>(value.step)] = 0;
    if (value.passed != -1) wanted[static_cast<size_t>(plan.root[static_cast<size_t>(steps[outer].c)])] = 0;
  }
  std::vector<size_t> last(steps.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (wanted[i]) ForOperands(plan, pass, i, [&](int32_t r) { last[static_cast<size_t>(r)] = i; });
  }
  // The rows behind a view must live as long as the view.
  for (size_t i = steps.size(); i-- > 0;) {
    if (!wanted[i] || !plan.is_view[i] || steps[i].a == -1) continue;
    size_t& of_source = last[static_cast<size_t>(plan.root[static_cast<size_t>(steps[i].a)])];
    of_source = std::max(of_source, last[i]);
    if (kept[i]) kept[static_cast<size_t>(plan.root[static_cast<size_t>(steps[i].a)])] = 1;
  }
  std::map<std::pair<RegionLevel, int32_t>, std::vector<int32_t>> free;
  for (size_t i = 0; i < steps.size(); ++i) {
    const RegionStep& s = steps[i];
    if (!wanted[i] || s.level == RegionLevel::kShared) continue;
    pass.steps.push_back(static_cast<int32_t>(i));
    std::vector<int32_t> read;  // roots that this step reads, directly or through views
    ForOperands(plan, pass, i, [&](int32_t r) {
      const RegionStep& from = steps[static_cast<size_t>(r)];
      read.push_back(r);
      if (plan.is_view[static_cast<size_t>(r)] && from.a != -1) read.push_back(plan.root[static_cast<size_t>(from.a)]);
    });
    std::vector<int32_t> ended;  // roots that this step is the last to read
    for (const int32_t r : read) {
      const auto at = static_cast<size_t>(r);
      if (last[at] == i && !kept[at] && pass.register_of[at] != -1 && std::ranges::find(ended, r) == ended.end()) {
        ended.push_back(r);
      }
    }
    int32_t& own = pass.register_of[i];
    if (!IsInPlace(s.op) && !plan.is_view[i]) {
      // An elementwise step may take over the register of an operand that it is the last to read.
      const auto taken_over = std::ranges::find_if(ended, [&](int32_t r) {
        const RegionStep& from = steps[static_cast<size_t>(r)];
        return TraitsOf(s.op).by_value && from.level == s.level && from.width == s.width;
      });
      std::vector<int32_t>& of_kind = free[{s.level, s.width}];
      if (taken_over != ended.end()) {
        own = pass.register_of[static_cast<size_t>(*taken_over)];
        ended.erase(taken_over);
      } else if (!of_kind.empty()) {
        own = of_kind.back();
        of_kind.pop_back();
      } else {
        own = registers.Add(s.level, s.width);
      }
    }
    for (const int32_t r : ended) {
      const RegionStep& from = steps[static_cast<size_t>(r)];
      free[{from.level, from.width}].push_back(pass.register_of[static_cast<size_t>(r)]);
    }
  }
  return pass;
}

}  // namespace

ReadByGradient ReadsOf(RegionOp op, int k) {
  switch (op) {
    case RegionOp::kExp:
    case RegionOp::kSqrt:
    case RegionOp::kRsqrt:
    case RegionOp::kReciprocal:
    case RegionOp::kSigmoid:
    case RegionOp::kTanh:
    case RegionOp::kRelu:
      return {.own = true};
    case RegionOp::kMax:
    case RegionOp::kMin:
      return {.own = true, .operands = {true}};
    case RegionOp::kAbs:
    case RegionOp::kLog:
    case RegionOp::kLeakyRelu:
    case RegionOp::kElu:
    case RegionOp::kSilu:
    case RegionOp::kSoftplus:
    case RegionOp::kClampMin:
    case RegionOp::kClampMax:
    case RegionOp::kPower:
      return {.operands = {true}};
    case RegionOp::kMul:
      return {.operands = {k == 1, k == 0}};
    case RegionOp::kDiv:
      return {.operands = {k == 1, true}};
    case RegionOp::kMaximum:
    case RegionOp::kMinimum:
      return {.operands = {true, true}};
    case RegionOp::kWhere:
      return {.operands = {false, false, true}};
    default:  // linear: its gradient reads no values
      return {};
  }
}

int32_t RegionRegisters::Add(RegionLevel level, int32_t width) {
  int64_t& columns = level == RegionLevel::kEdge ? edge_columns : target_columns;
  registers.push_back({.level = level, .width = width, .before = columns});
  columns += width;
  return static_cast<int32_t>(registers.size()) - 1;
}

bool PassesGradient(RegionOp op, int k) {
  if (op == RegionOp::kDetach || (op >= RegionOp::kLess && op <= RegionOp::kNotEqual)) return false;
  return k < TraitsOf(op).operands && (op != RegionOp::kWhere || k < 2);
}

bool TakesWidth(const RegionStep& step, int32_t width) {
  const int32_t repeat = step.width / width;
  return repeat == 1 || (step.op == RegionOp::kMul && repeat % kLeastViewWidth == 0);
}

bool PassesAdjointUnchanged(const RegionStep& step, int k) {
  return (step.op == RegionOp::kAdd && (k == 0 || step.x == 1)) || (step.op == RegionOp::kSub && k == 0);
}

RegionPlan::RegionPlan(EdgeRegion of) : region(std::move(of)) {
  const size_t count = region.steps.size();
  root.resize(count);
  home.resize(count);
  shared_place.assign(count, -1);
  reader.assign(static_cast<size_t>(region.num_inputs), -1);
  for (size_t i = 0; i < count; ++i) {
    const RegionStep& s = region.steps[i];
    widest = std::max(widest, s.width);
    root[i] = home[i] = static_cast<int32_t>(i);
    if (s.input != -1) {
      int32_t& first = reader[static_cast<size_t>(s.input)];
      if (first == -1) first = static_cast<int32_t>(i);
      root[i] = home[i] = first;
    } else if (s.op == RegionOp::kDetach) {
      root[i] = root[static_cast<size_t>(s.a)];
    } else if (s.level == RegionLevel::kShared) {
      shared_steps.push_back(static_cast<int32_t>(i));
      shared_place[i] = shared_columns;
      shared_columns += s.width;
    }
  }
  is_view = ReadByRow(*this);
  may_lie_apart.assign(static_cast<size_t>(region.num_inputs), 0);
  for (size_t i = 0; i < count; ++i) {
    if (region.steps[i].op != RegionOp::kTarget || !is_view[i]) continue;
    may_lie_apart[static_cast<size_t>(region.steps[i].input)] = 1;
    is_view[i] = 0;
  }
  std::vector<char> wanted(count, 0);
  for (const int32_t o : region.outputs) wanted[static_cast<size_t>(root[static_cast<size_t>(o)])] = 1;
  const std::vector<char> kept = wanted;
  AddOperands(*this, wanted);
  forward = Allocate(*this, wanted, kept, registers);
}

RegionGradientPlan::RegionGradientPlan(const RegionPlan& plan, std::span<const char> wanted_inputs,
                                       std::span<const char> given_outputs) {
  const std::vector<RegionStep>& steps = plan.region.steps;
  std::vector<char> leads(steps.size(), 0);
  for (size_t i = 0; i < steps.size(); ++i) {
    const RegionStep& s = steps[i];
    if (s.input != -1) leads[i] = wanted_inputs[static_cast<size_t>(s.input)];
    for (int k = 0; k < TraitsOf(s.op).operands; ++k) {
      const int32_t o = s.operands()[static_cast<size_t>(k)];
      if (PassesGradient(s.op, k) && leads[static_cast<size_t>(o)]) leads[i] = 1;
    }
  }
  active.assign(steps.size(), 0);
  adjoint_of.assign(steps.size(), -1);
  for (size_t i = 0; i < plan.region.outputs.size(); ++i) {
    const auto o = static_cast<size_t>(plan.region.outputs[i]);
    if (given_outputs[i] && leads[o]) active[static_cast<size_t>(plan.home[o])] = 1;
  }
  std::vector<char> read(steps.size(), 0);
  for (size_t i = steps.size(); i-- > 0;) {
    const RegionStep& s = steps[i];
    if (!active[i]) continue;
    for (int k = 0; k < TraitsOf(s.op).operands; ++k) {
      const auto o = static_cast<size_t>(s.operands()[static_cast<size_t>(k)]);
      if (!PassesGradient(s.op, k) || !leads[o]) continue;
      active[static_cast<size_t>(plan.home[o])] = 1;
      const ReadByGradient reads = ReadsOf(s.op, k);
      if (reads.own) read[i] = 1;
      for (size_t j = 0; j < 3; ++j) {
        if (reads.operands[j]) read[static_cast<size_t>(plan.root[static_cast<size_t>(s.operands()[j])])] = 1;
      }
    }
  }
  std::vector<char> wanted = read;
  AddOperands(plan, wanted);
  values = Allocate(plan, wanted, read, registers);
  for (size_t i = 0; i < steps.size(); ++i) {
    if (active[i] && steps[i].level != RegionLevel::kShared) {
      adjoint_of[i] = registers.Add(steps[i].level, steps[i].width);
    }
  }
}

}  // namespace permafrost::nn
