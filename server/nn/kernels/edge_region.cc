#include "nn/kernels/edge_region.h"

#include <cstddef>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace permafrost::nn {

constexpr std::array<RegionOpTraits, kNumRegionOps> kRegionOps{{
    {RegionOp::kShared, "shared", 0, false},
    {RegionOp::kTarget, "target", 0, false},
    {RegionOp::kEdge, "edge", 0, false},
    {RegionOp::kGather, "gather", 0, false},
    {RegionOp::kConstant, "constant", 0, false},
    {RegionOp::kExpand, "expand", 1, false},
    {RegionOp::kSum, "sum", 1, false},
    {RegionOp::kMax, "max", 1, false},
    {RegionOp::kMin, "min", 1, false},
    {RegionOp::kCount, "count", 0, false},
    {RegionOp::kRowSum, "row_sum", 1, false},
    {RegionOp::kDetach, "detach", 1, false},
    {RegionOp::kNeg, "neg", 1, true},
    {RegionOp::kAbs, "abs", 1, true},
    {RegionOp::kExp, "exp", 1, true},
    {RegionOp::kLog, "log", 1, true},
    {RegionOp::kSqrt, "sqrt", 1, true},
    {RegionOp::kRsqrt, "rsqrt", 1, true},
    {RegionOp::kReciprocal, "reciprocal", 1, true},
    {RegionOp::kSigmoid, "sigmoid", 1, true},
    {RegionOp::kTanh, "tanh", 1, true},
    {RegionOp::kRelu, "relu", 1, true},
    {RegionOp::kLeakyRelu, "leaky_relu", 1, true},
    {RegionOp::kElu, "elu", 1, true},
    {RegionOp::kSilu, "silu", 1, true},
    {RegionOp::kSoftplus, "softplus", 1, true},
    {RegionOp::kClampMin, "clamp_min", 1, true},
    {RegionOp::kClampMax, "clamp_max", 1, true},
    {RegionOp::kPower, "power", 1, true},
    {RegionOp::kScale, "scale", 1, true},
    {RegionOp::kAdd, "add", 2, true},
    {RegionOp::kSub, "sub", 2, true},
    {RegionOp::kMul, "mul", 2, true},
    {RegionOp::kDiv, "div", 2, true},
    {RegionOp::kMaximum, "maximum", 2, true},
    {RegionOp::kMinimum, "minimum", 2, true},
    {RegionOp::kLess, "less", 1, true},
    {RegionOp::kLessEqual, "less_equal", 1, true},
    {RegionOp::kGreater, "greater", 1, true},
    {RegionOp::kGreaterEqual, "greater_equal", 1, true},
    {RegionOp::kEqual, "equal", 1, true},
    {RegionOp::kNotEqual, "not_equal", 1, true},
    {RegionOp::kWhere, "where", 3, true},
}};
constexpr EnumNames<RegionOp, kNumRegionOps> kRegionOpNames =
    NamesFrom<RegionOp, RegionOpTraits, kNumRegionOps>(kRegionOps, &RegionOpTraits::op);
constexpr EnumNames<RegionLevel, 3> kRegionLevelNames{
    {{{RegionLevel::kShared, "shared"}, {RegionLevel::kTarget, "target"}, {RegionLevel::kEdge, "edge"}}}};

namespace {

constexpr int64_t kRegionVersion = 1;
constexpr size_t kHeaderInts = 5, kStepInts = 9, kStepNumbers = 2;

std::string Named(RegionOp op) { return std::string(kRegionOpNames.Name(op)); }
std::string Named(RegionLevel level) { return std::string(kRegionLevelNames.Name(level)); }

bool IsInput(RegionOp op) { return op <= RegionOp::kGather; }

absl::Status Refused(size_t step, const RegionStep& s, const auto&... why) {
  return absl::InvalidArgumentError(absl::StrCat("step ", step, " (", Named(s.op), "): ", why...));
}

// Returns the level that the step must have. a: the step's first operand, or null.
RegionLevel LevelOf(const RegionStep& s, const RegionStep* a) {
  switch (s.op) {
    case RegionOp::kShared:
    case RegionOp::kConstant:
      return RegionLevel::kShared;
    case RegionOp::kTarget:
    case RegionOp::kSum:
    case RegionOp::kMax:
    case RegionOp::kMin:
    case RegionOp::kCount:
      return RegionLevel::kTarget;
    case RegionOp::kEdge:
    case RegionOp::kGather:
    case RegionOp::kExpand:
      return RegionLevel::kEdge;
    default:  // kRowSum and kDetach have the level of `a`; elementwise steps keep their own
      return a != nullptr && !TraitsOf(s.op).by_value ? a->level : s.level;
  }
}

absl::Status CheckOperands(std::span<const RegionStep> steps, size_t i) {
  const RegionStep& s = steps[i];
  const RegionOpTraits& traits = TraitsOf(s.op);
  const std::array<int32_t, 3> operands = s.operands();
  for (int k = 0; k < 3; ++k) {
    const int32_t o = operands[static_cast<size_t>(k)];
    if (k >= traits.operands) {
      if (o != -1) return Refused(i, s, "takes ", traits.operands, " operands, and has another: ", o);
      continue;
    }
    if (o < 0 || static_cast<size_t>(o) >= i) return Refused(i, s, "operand ", o, " is not a step before it");
    const RegionStep& from = steps[static_cast<size_t>(o)];
    if (!traits.by_value) continue;
    if (from.level != s.level && from.level != RegionLevel::kShared) {
      return Refused(i, s, "operand ", o, " has level ", Named(from.level), ", the step ", Named(s.level));
    }
    if (s.width % from.width != 0) {
      return Refused(i, s, "width ", s.width, " is no multiple of that of operand ", o, ", ", from.width);
    }
  }
  return absl::OkStatus();
}

// Checks everything except the operands of elementwise steps.
absl::Status CheckShape(std::span<const RegionStep> steps, size_t i) {
  const RegionStep& s = steps[i];
  const RegionStep* const a = TraitsOf(s.op).operands > 0 ? &steps[static_cast<size_t>(s.a)] : nullptr;
  if (const RegionLevel level = LevelOf(s, a); s.level != level) {
    return Refused(i, s, "level ", Named(s.level), " is not ", Named(level));
  }
  int64_t width = s.width;
  switch (s.op) {
    case RegionOp::kConstant:
    case RegionOp::kCount:
      width = 1;
      break;
    case RegionOp::kExpand:
    case RegionOp::kSum:
    case RegionOp::kMax:
    case RegionOp::kMin: {
      width = a->width;
      const RegionLevel from = s.op == RegionOp::kExpand ? RegionLevel::kTarget : RegionLevel::kEdge;
      if (a->level != from) return Refused(i, s, "operand ", s.a, " is no ", Named(from), " step");
      break;
    }
    case RegionOp::kDetach:
      width = a->width;
      break;
    case RegionOp::kRowSum:
      if (s.group < 1 || a->width % s.group != 0) {
        return Refused(i, s, "group ", s.group, " does not divide ", a->width, ", the width of operand ", s.a);
      }
      width = a->width / s.group;
      break;
    default:
      break;
  }
  if (s.width != width) return Refused(i, s, "width ", s.width, " is not ", width);
  return absl::OkStatus();
}

absl::Status CheckPlaces(const EdgeRegion& region, size_t i) {
  const RegionStep& s = region.steps[i];
  if (s.width < 1 || s.width > kMaxRegionWidth) {
    return Refused(i, s, "width ", s.width, " is not in 1..", kMaxRegionWidth);
  }
  if (IsInput(s.op) ? s.input < 0 || s.input >= region.num_inputs : s.input != -1) {
    return Refused(i, s, "input ", s.input, "; the region has ", region.num_inputs);
  }
  if (s.op == RegionOp::kGather ? s.index < 0 || s.index >= region.num_indices : s.index != -1) {
    return Refused(i, s, "index ", s.index, "; the region has ", region.num_indices);
  }
  return absl::OkStatus();
}

absl::Status Check(const EdgeRegion& region) {
  std::vector<int32_t> reader(static_cast<size_t>(region.num_inputs), -1);
  for (size_t i = 0; i < region.steps.size(); ++i) {
    if (const absl::Status status = CheckPlaces(region, i); !status.ok()) return status;
    if (const absl::Status status = CheckOperands(region.steps, i); !status.ok()) return status;
    if (const absl::Status status = CheckShape(region.steps, i); !status.ok()) return status;
    const RegionStep& s = region.steps[i];
    if (!IsInput(s.op)) continue;
    int32_t& first = reader[static_cast<size_t>(s.input)];
    if (first == -1) {
      first = static_cast<int32_t>(i);
    } else {
      const RegionStep& other = region.steps[static_cast<size_t>(first)];
      if (std::tie(s.op, s.index, s.width) != std::tie(other.op, other.index, other.width)) {
        return Refused(i, s, "reads input ", s.input, " otherwise than step ", first);
      }
    }
  }
  for (const int32_t o : region.outputs) {
    if (o < 0 || static_cast<size_t>(o) >= region.steps.size()) {
      return absl::InvalidArgumentError(absl::StrCat("output ", o, " is not a step of ", region.steps.size()));
    }
    if (region.steps[static_cast<size_t>(o)].level == RegionLevel::kShared) {
      return absl::InvalidArgumentError(absl::StrCat("output ", o, " is a shared step"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

EncodedRegion Encode(const EdgeRegion& region) {
  EncodedRegion encoded;
  encoded.code = {kRegionVersion, region.num_inputs, region.num_indices, std::ssize(region.steps),
                  std::ssize(region.outputs)};
  for (const RegionStep& s : region.steps) {
    for (const int64_t value :
         {int64_t{static_cast<uint8_t>(s.op)}, int64_t{static_cast<uint8_t>(s.level)}, int64_t{s.a}, int64_t{s.b},
          int64_t{s.c}, int64_t{s.input}, int64_t{s.index}, int64_t{s.width}, int64_t{s.group}}) {
      encoded.code.push_back(value);
    }
    encoded.numbers.push_back(s.x);
    encoded.numbers.push_back(s.y);
  }
  encoded.code.insert(encoded.code.end(), region.outputs.begin(), region.outputs.end());
  return encoded;
}

absl::StatusOr<EdgeRegion> DecodeRegion(std::span<const int64_t> code, std::span<const double> numbers) {
  if (code.size() < kHeaderInts || code[0] != kRegionVersion) {
    return absl::InvalidArgumentError(absl::StrCat("the code of a region begins with ", code.empty() ? -1 : code[0],
                                                   " and has ", code.size(), " values, not version ", kRegionVersion));
  }
  for (size_t i = 1; i < code.size(); ++i) {
    if (code[i] < -1 || code[i] > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat("value ", i, " of a region's code is ", code[i]));
    }
  }
  const int64_t steps = code[3], outputs = code[4];
  if (code[1] < 0 || code[2] < 0 || steps < 0 || steps > kMaxRegionSteps || outputs < 0 || code[1] > steps ||
      code[2] > steps || outputs > kMaxRegionSteps) {
    return absl::InvalidArgumentError(absl::StrCat("a region of ", code[1], " inputs, ", code[2], " indices, ", steps,
                                                   " steps and ", outputs, " outputs; at most ", kMaxRegionSteps,
                                                   " steps are accepted, and as many inputs as steps"));
  }
  const auto num_steps = static_cast<size_t>(steps), num_outputs = static_cast<size_t>(outputs);
  if (code.size() != kHeaderInts + num_steps * kStepInts + num_outputs || numbers.size() != num_steps * kStepNumbers) {
    return absl::InvalidArgumentError(absl::StrCat("a region of ", steps, " steps and ", outputs, " outputs has ",
                                                   code.size(), " values and ", numbers.size(), " numbers"));
  }
  EdgeRegion region;
  region.num_inputs = static_cast<int32_t>(code[1]);
  region.num_indices = static_cast<int32_t>(code[2]);
  region.steps.resize(num_steps);
  for (size_t i = 0; i < num_steps; ++i) {
    const auto at = [&, from = kHeaderInts + i * kStepInts](size_t k) { return static_cast<int32_t>(code[from + k]); };
    if (at(0) < 0 || at(0) >= kNumRegionOps || at(1) < 0 || at(1) > static_cast<int32_t>(RegionLevel::kEdge)) {
      return absl::InvalidArgumentError(absl::StrCat("step ", i, ": there is no kind ", at(0), " of level ", at(1)));
    }
    region.steps[i] = {.op = static_cast<RegionOp>(at(0)),
                       .a = at(2),
                       .b = at(3),
                       .c = at(4),
                       .input = at(5),
                       .index = at(6),
                       .width = at(7),
                       .group = at(8),
                       .x = numbers[i * kStepNumbers],
                       .y = numbers[i * kStepNumbers + 1],
                       .level = static_cast<RegionLevel>(at(1))};
  }
  for (size_t i = 0; i < num_outputs; ++i) {
    region.outputs.push_back(static_cast<int32_t>(code[code.size() - num_outputs + i]));
  }
  if (const absl::Status status = Check(region); !status.ok()) return status;
  return region;
}

int32_t FirstTargetInput(const EdgeRegion& region) {
  const auto found = std::ranges::find(region.steps, RegionOp::kTarget, &RegionStep::op);
  return found == region.steps.end() ? -1 : found->input;
}

bool HasNoEdges(const EdgeRegion& region) {
  return std::ranges::none_of(region.steps, [](const RegionStep& step) {
    const bool reduces = step.op == RegionOp::kSum || step.op == RegionOp::kMax || step.op == RegionOp::kMin;
    return step.level == RegionLevel::kEdge || step.op == RegionOp::kCount || reduces;
  });
}

std::string ToString(const EdgeRegion& region) {
  std::string text;
  for (size_t i = 0; i < region.steps.size(); ++i) {
    const RegionStep& s = region.steps[i];
    absl::StrAppend(&text, i, ": ", Named(s.level), "[", s.width, "] = ", Named(s.op), "(");
    const char* separator = "";
    const auto append = [&](const auto&... parts) {
      absl::StrAppend(&text, separator, parts...);
      separator = ", ";
    };
    for (const int32_t o : s.operands()) {
      if (o != -1) append(o);
    }
    if (s.input != -1) append("input ", s.input);
    if (s.index != -1) append("index ", s.index);
    if (s.group != 1) append("group ", s.group);
    if (s.x != 0) append("x ", s.x);
    if (s.y != 0) append("y ", s.y);
    absl::StrAppend(&text, ")\n");
  }
  for (const int32_t o : region.outputs) absl::StrAppend(&text, "output: ", o, "\n");
  return text;
}

}  // namespace permafrost::nn
