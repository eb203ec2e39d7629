#include "nn/kernels/edge_region_sources.h"

#include <algorithm>
#include <utility>

namespace permafrost::nn {
namespace {

constexpr int32_t kNone = -1;

// A region under construction, and the sources of its inputs.
class Draft {
 public:
  Draft(EdgeRegion& region, std::vector<RegionSource>& sources) : region_(region), sources_(sources) {}

  const RegionStep& At(int32_t step) const { return region_.steps[static_cast<size_t>(step)]; }
  int32_t Add(const RegionStep& step) {
    region_.steps.push_back(step);
    return static_cast<int32_t>(region_.steps.size()) - 1;
  }
  // Adds a step that reads an input. Each source is read by steps of one kind.
  int32_t Read(const RegionSource& source, RegionStep step) {
    const auto found = std::ranges::find(sources_, source);
    step.input = static_cast<int32_t>(found - sources_.begin());
    if (found == sources_.end()) {
      sources_.push_back(source);
      ++region_.num_inputs;
    }
    return Add(step);
  }
  int32_t Zero() { return Add({.op = RegionOp::kConstant}); }
  // Adds a step that works value by value. Its width is the width of its widest operand, or `width` if `width` is
  // larger.
  int32_t Value(RegionOp op, RegionLevel level, std::array<int32_t, 3> operands, double x = 0, int32_t width = 1) {
    RegionStep step{.op = op, .a = operands[0], .b = operands[1], .c = operands[2], .width = width, .x = x};
    step.level = level;
    for (const int32_t o : operands) {
      if (o != kNone) step.width = std::max(step.width, At(o).width);
    }
    return Add(step);
  }

 private:
  EdgeRegion& region_;
  std::vector<RegionSource>& sources_;
};

// Differentiates a region. Values and adjoints of edges become steps of `rows`. Values and adjoints of targets become
// steps of `targets`.
class Differentiation {
 public:
  Differentiation(const RegionPlan& plan, int32_t input, std::span<const char> given)
      : plan_(plan), steps_(plan.region.steps), input_(input), given_(given) {
    value_of_.assign(steps_.size(), kUnknown);
    shared_in_targets_ = shared_in_rows_ = value_of_;
    adjoint_of_.assign(steps_.size(), kUnknown);
    expanded_.assign(steps_.size(), kUnknown);
  }

  std::optional<SourceGradient> Run() {
    const int32_t reader = plan_.reader[static_cast<size_t>(input_)];
    index_ = Step(reader).index;
    const int32_t adjoint = Adjoint(reader);
    if (failed_ || adjoint == kNone) return std::nullopt;
    out_.rows.outputs = {
        rows_.Add({.op = RegionOp::kSum, .a = adjoint, .width = Step(reader).width, .level = RegionLevel::kTarget})};
    out_.rows.num_indices = static_cast<int32_t>(out_.row_indices.size());
    return std::move(out_);
  }

 private:
  static constexpr int32_t kUnknown = -2;

  const RegionStep& Step(int32_t i) const { return steps_[static_cast<size_t>(i)]; }
  Draft& DraftOf(RegionLevel level) { return level == RegionLevel::kTarget ? targets_ : rows_; }
  int32_t Fail() {
    failed_ = true;
    return kNone;
  }

  // Returns the position of an index of the differentiated region among the indices of `rows`. Adds the index if it
  // is new.
  int32_t IndexOf(int32_t index) {
    const auto found = std::ranges::find(out_.row_indices, index);
    if (found == out_.row_indices.end()) out_.row_indices.push_back(index);
    return static_cast<int32_t>(std::ranges::find(out_.row_indices, index) - out_.row_indices.begin());
  }
  // Returns the step of `rows` that gathers, for each edge, the row of the edge's target from `source`.
  int32_t AtTargetsOf(const RegionSource& source, int32_t width) {
    return rows_.Read(source,
                      {.op = RegionOp::kGather, .index = IndexOf(kNone), .width = width, .level = RegionLevel::kEdge});
  }

  // Returns the step that computes step i in the draft of `level`. Shared values are computed in both drafts.
  int32_t Value(int32_t i, RegionLevel level) {
    const RegionStep& s = Step(i);
    std::vector<int32_t>& values = s.level != RegionLevel::kShared ? value_of_
                                   : level == RegionLevel::kTarget ? shared_in_targets_
                                                                   : shared_in_rows_;
    int32_t& value = values[static_cast<size_t>(i)];
    if (value != kUnknown) return value;
    return value = s.level == RegionLevel::kShared ? SharedValue(s, level)
                   : s.level == RegionLevel::kEdge ? EdgeValue(s)
                                                   : TargetValue(s);
  }
  int32_t SharedValue(RegionStep s, RegionLevel level) {
    Draft& draft = DraftOf(level);
    if (s.op == RegionOp::kShared) return draft.Read({RegionSource::Kind::kInput, s.input}, s);
    if (s.op == RegionOp::kDetach) return Value(s.a, level);
    if (s.a != kNone) s.a = Value(s.a, level);
    if (s.b != kNone) s.b = Value(s.b, level);
    if (s.c != kNone) s.c = Value(s.c, level);
    return failed_ ? kNone : draft.Add(s);
  }
  int32_t EdgeValue(RegionStep s) {
    const RegionSource source{RegionSource::Kind::kInput, s.input};
    switch (s.op) {
      case RegionOp::kEdge:
        return rows_.Read(source, s);
      case RegionOp::kGather: {
        if (s.index != index_) {
          s.index = IndexOf(s.index);
          return rows_.Read(source, s);
        }
        const int32_t row =
            rows_.Read(source, {.op = RegionOp::kTarget, .width = s.width, .level = RegionLevel::kTarget});
        return rows_.Add({.op = RegionOp::kExpand, .a = row, .width = s.width, .level = RegionLevel::kEdge});
      }
      case RegionOp::kExpand:
        return Expanded(s.a);
      case RegionOp::kDetach:
        return Value(s.a, s.level);
      default:
        return Computed(s);
    }
  }
  int32_t TargetValue(const RegionStep& s) {
    if (s.op == RegionOp::kTarget) return targets_.Read({RegionSource::Kind::kInput, s.input}, s);
    if (s.op == RegionOp::kCount) return targets_.Add(s);
    if (s.op == RegionOp::kDetach) return Value(s.a, s.level);
    return Computed(s);
  }
  // Adds a copy of step `s`. Fails if the step is costly. Also fails unless the step works value by value or sums
  // groups of a row.
  int32_t Computed(RegionStep s) {
    if (!TraitsOf(s.op).by_value && s.op != RegionOp::kRowSum) return Fail();
    if (IsCostly(s.op)) return Fail();
    if (s.a != kNone) s.a = Value(s.a, s.level);
    if (s.b != kNone) s.b = Value(s.b, s.level);
    if (s.c != kNone) s.c = Value(s.c, s.level);
    return failed_ ? kNone : DraftOf(s.level).Add(s);
  }
  static bool IsCostly(RegionOp op) {
    switch (op) {
      case RegionOp::kExp:
      case RegionOp::kLog:
      case RegionOp::kSigmoid:
      case RegionOp::kTanh:
      case RegionOp::kElu:
      case RegionOp::kSilu:
      case RegionOp::kSoftplus:
      case RegionOp::kPower:
        return true;
      default:
        return false;
    }
  }

  // Returns the edge step that holds, at each edge, the values of target step i.
  int32_t Expanded(int32_t i) {
    const RegionStep& s = Step(i);
    int32_t& expanded = expanded_[static_cast<size_t>(i)];
    if (expanded != kUnknown) return expanded;
    if (s.op == RegionOp::kTarget) {
      expanded = AtTargetsOf({RegionSource::Kind::kInput, s.input}, s.width);
    } else {
      const int32_t value = Value(i, RegionLevel::kTarget);
      expanded = failed_ ? kNone : Exported(value, s.width);
    }
    return expanded;
  }
  // Makes a step of `targets` an output. Returns the step of `rows` that reads this output for the target of each
  // edge.
  int32_t Exported(int32_t step, int32_t width) {
    const RegionStep& s = targets_.At(step);
    if (s.op == RegionOp::kTarget) return AtTargetsOf(out_.target_inputs[static_cast<size_t>(s.input)], width);
    std::vector<int32_t>& outputs = out_.targets.outputs;
    const auto found = std::ranges::find(outputs, step);
    const auto place = static_cast<int32_t>(found - outputs.begin());
    if (found == outputs.end()) outputs.push_back(step);
    return AtTargetsOf({RegionSource::Kind::kTargets, place}, width);
  }

  // Returns the adjoint of step i in the draft of its level; kNone if no gradient reaches it.
  int32_t Adjoint(int32_t i) {
    const auto at = static_cast<size_t>(i);
    if (adjoint_of_[at] != kUnknown) return adjoint_of_[at];
    const RegionStep& s = steps_[at];
    int32_t sum = kNone;
    const auto add = [&](int32_t part) {
      if (part == kNone) return;
      sum = sum == kNone ? part : DraftOf(s.level).Value(RegionOp::kAdd, s.level, {sum, part, kNone}, 1);
    };
    for (size_t j = 0; j < plan_.region.outputs.size(); ++j) {
      if (!given_[j] || plan_.home[static_cast<size_t>(plan_.region.outputs[j])] != i) continue;
      const RegionSource source{RegionSource::Kind::kGradient, static_cast<int32_t>(j)};
      const RegionOp op = s.level == RegionLevel::kEdge ? RegionOp::kEdge : RegionOp::kTarget;
      add(DraftOf(s.level).Read(source, {.op = op, .width = s.width, .level = s.level}));
    }
    for (size_t r = 0; r < steps_.size() && !failed_; ++r) {
      const std::array<int32_t, 3> operands = steps_[r].operands();
      for (int k = 0; k < TraitsOf(steps_[r].op).operands && !failed_; ++k) {
        const int32_t o = operands[static_cast<size_t>(k)];
        if (!PassesGradient(steps_[r].op, k) || plan_.home[static_cast<size_t>(o)] != i) continue;
        add(PartOf(static_cast<int32_t>(r), k, s));
      }
    }
    return adjoint_of_[at] = failed_ ? kNone : sum;
  }

  // Returns the share that step r adds to the adjoint of its operand k. s: operand k.
  int32_t PartOf(int32_t r, int k, const RegionStep& s) {
    const RegionStep& reader = Step(r);
    const int32_t g = Adjoint(r);
    if (failed_ || g == kNone) return kNone;
    switch (reader.op) {
      case RegionOp::kSum:
        return Exported(g, s.width);
      case RegionOp::kRowSum:
        return DraftOf(s.level).Value(RegionOp::kScale, s.level, {g, kNone, kNone}, 1, s.width);
      case RegionOp::kExpand:
      case RegionOp::kMax:
      case RegionOp::kMin:
        return Fail();
      default:
        break;
    }
    const int32_t part = ByValue(reader, k, g);
    if (failed_ || s.width == reader.width) return part;
    const int32_t group = reader.width / s.width;
    return DraftOf(s.level).Add(
        {.op = RegionOp::kRowSum, .a = part, .width = s.width, .group = group, .level = s.level});
  }

  // Returns g times the derivative of `r` by its operand k, as wide as `r`.
  int32_t ByValue(const RegionStep& r, int k, int32_t g) {
    Draft& draft = DraftOf(r.level);
    const auto scaled = [&](double x) {
      return x == 1 ? g : draft.Value(RegionOp::kScale, r.level, {g, kNone, kNone}, x);
    };
    const auto where = [&](int32_t a, int32_t b, int32_t mask) {
      return failed_ ? kNone : draft.Value(RegionOp::kWhere, r.level, {a, b, mask}, 0, r.width);
    };
    switch (r.op) {
      case RegionOp::kNeg:
        return scaled(-1);
      case RegionOp::kScale:
        return scaled(r.x);
      case RegionOp::kAdd:
        return scaled(k == 0 ? 1 : r.x);
      case RegionOp::kSub:
        return scaled(k == 0 ? 1 : -r.x);
      case RegionOp::kMul: {
        const int32_t other = Value(k == 0 ? r.b : r.a, r.level);
        return failed_ ? kNone : draft.Value(RegionOp::kMul, r.level, {g, other, kNone});
      }
      case RegionOp::kDiv: {
        if (k != 0) return Fail();
        const int32_t by = Value(r.b, r.level);
        return failed_ ? kNone : draft.Value(RegionOp::kDiv, r.level, {g, by, kNone});
      }
      case RegionOp::kRelu: {
        // The operand is positive, or NaN, exactly where the result is.
        const int32_t a = Value(r.a, r.level);
        if (failed_) return kNone;
        const int32_t mask = draft.Value(RegionOp::kLessEqual, r.level, {a, kNone, kNone}, 0, r.width);
        return where(draft.Zero(), g, mask);
      }
      case RegionOp::kLeakyRelu: {
        const int32_t a = Value(r.a, r.level);
        if (failed_) return kNone;
        const int32_t mask = draft.Value(RegionOp::kGreater, r.level, {a, kNone, kNone}, 0, r.width);
        return where(g, scaled(r.x), mask);
      }
      case RegionOp::kWhere: {
        const int32_t mask = Value(r.c, r.level);
        return k == 0 ? where(g, draft.Zero(), mask) : where(draft.Zero(), g, mask);
      }
      default:
        return Fail();
    }
  }

  const RegionPlan& plan_;
  const std::vector<RegionStep>& steps_;
  const int32_t input_;
  const std::span<const char> given_;
  int32_t index_ = kNone;
  SourceGradient out_;
  Draft targets_{out_.targets, out_.target_inputs}, rows_{out_.rows, out_.row_inputs};
  std::vector<int32_t> value_of_, shared_in_targets_, shared_in_rows_, adjoint_of_, expanded_;
  bool failed_ = false;
};

}  // namespace

std::optional<SourceGradient> GradientBySource(const RegionPlan& plan, int32_t input,
                                               std::span<const char> given_outputs) {
  return Differentiation(plan, input, given_outputs).Run();
}

}  // namespace permafrost::nn
