// A kernel is a sequence of phases, which __syncthreads() separates, and each phase is a sequence of loops. Loops
// write outputs, reductions over a target's edges, and row sums. The values of all other steps live in registers;
// each loop that reads such a value computes it again. A loop belongs to the first phase in which all stored values
// that it reads are written. A softmax takes four phases: the scores, the largest score, the sum of exponentials, and
// the weighted sum.
//
// Cost: in a reduction, one thread per column walks all edges of the target. So a target with many edges keeps its
// block busy long after all other blocks are done, and a narrow step leaves most threads idle. Edge steps are spread
// over edges and columns, target steps over columns. In a row sum, one thread adds up each group.
#include "nn/gpu/region_source.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <compare>
#include <cstddef>
#include <map>
#include <set>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/substitute.h"

namespace permafrost::nn::gpu {
namespace {

constexpr int32_t kWarp = 32, kMostThreads = 256;

// The type of a kernel's values, in the words of C.
struct ValueType {
  const char* name;                // "float"
  const char* suffix;              // ending of literals and math functions of the type: "f"
  std::string (*literal)(double);  // rounds a number to the type; returns the shortest literal
};

// The formula of each elementwise step, as a C expression. $0, $1 and $2 are the operands. $3 and $4 are the numbers
// x and y. $5 ends the names of math functions. In C, every comparison with NaN except `!=` is false. So the formulas
// choose among operands in an order that lets NaN pass. For a NaN operand, kNotEqual yields 1, and all other
// comparing steps yield 0.
struct Formula {
  RegionOp op;
  const char* text;
};
constexpr Formula kFormulas[] = {
    {RegionOp::kNeg, "-$0"},
    {RegionOp::kAbs, "fabs$5($0)"},
    {RegionOp::kExp, "exp$5($0)"},
    {RegionOp::kLog, "log$5($0)"},
    {RegionOp::kSqrt, "sqrt$5($0)"},
    {RegionOp::kRsqrt, "1 / sqrt$5($0)"},
    {RegionOp::kReciprocal, "1 / $0"},
    {RegionOp::kSigmoid, "1 / (1 + exp$5(-$0))"},
    {RegionOp::kTanh, "tanh$5($0)"},
    {RegionOp::kRelu, "$0 < 0 ? 0 : $0"},
    {RegionOp::kLeakyRelu, "$0 > 0 ? $0 : $0 * $3"},
    {RegionOp::kElu, "$0 < 0 ? $3 * expm1$5($0) : $0"},
    {RegionOp::kSilu, "$0 / (1 + exp$5(-$0))"},
    {RegionOp::kSoftplus, "$0 > 20 ? $0 : log1p$5(exp$5($0))"},
    {RegionOp::kClampMin, "$0 < $3 ? $3 : $0"},
    {RegionOp::kClampMax, "$0 > $3 ? $3 : $0"},
    {RegionOp::kPower, "pow$5($0, $3)"},
    {RegionOp::kScale, "$0 * $3 + $4"},
    {RegionOp::kAdd, "$0 + $1 * $3"},
    {RegionOp::kSub, "$0 - $1 * $3"},
    {RegionOp::kMul, "$0 * $1"},
    {RegionOp::kDiv, "$0 / $1"},
    {RegionOp::kMaximum, "$0 > $1 || $0 != $0 ? $0 : $1"},
    {RegionOp::kMinimum, "$0 < $1 || $0 != $0 ? $0 : $1"},
    {RegionOp::kLess, "$0 < $3 ? 1 : 0"},
    {RegionOp::kLessEqual, "$0 <= $3 ? 1 : 0"},
    {RegionOp::kGreater, "$0 > $3 ? 1 : 0"},
    {RegionOp::kGreaterEqual, "$0 >= $3 ? 1 : 0"},
    {RegionOp::kEqual, "$0 == $3 ? 1 : 0"},
    {RegionOp::kNotEqual, "$0 != $3 ? 1 : 0"},
    {RegionOp::kWhere, "$2 == 0 ? $1 : $0"},
};

// A shorter formula for one particular value of x. PyTorch's operators use it too.
struct ShortFormula {
  RegionOp op;
  double x;
  const char* text;
};
constexpr ShortFormula kShortFormulas[] = {
    {RegionOp::kAdd, 1, "$0 + $1"},
    {RegionOp::kSub, 1, "$0 - $1"},
    {RegionOp::kPower, 1, "$0"},
    {RegionOp::kPower, 2, "$0 * $0"},
    {RegionOp::kPower, 3, "$0 * $0 * $0"},
    {RegionOp::kPower, 0.5, "sqrt$5($0)"},
    {RegionOp::kPower, -0.5, "1 / sqrt$5($0)"},
    {RegionOp::kPower, -1, "1 / $0"},
    {RegionOp::kPower, -2, "1 / ($0 * $0)"},
};

const char* TextOf(const RegionStep& step) {
  for (const ShortFormula& f : kShortFormulas) {
    if (f.op == step.op && f.x == step.x) return f.text;
  }
  for (const Formula& f : kFormulas) {
    if (f.op == step.op) return f.text;
  }
  return "";
}

template <class T>
constexpr const char* kSuffix = std::is_same_v<T, float> ? "f" : "";

template <class T>
std::string LiteralOf(double x) {
  // The CPU's kernels round x in the same way.
  const T value = static_cast<T>(x);
  if (std::isnan(value)) return absl::Substitute("(0.0$0 / 0.0$0)", kSuffix<T>);
  if (std::isinf(value)) return absl::Substitute("($1.0$0 / 0.0$0)", kSuffix<T>, value > 0 ? "1" : "-1");
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  const std::string text(digits.data(), end);
  const bool is_integer = text.find_first_of(".e") == std::string::npos;
  return absl::StrCat(text, is_integer ? ".0" : "", kSuffix<T>);
}

// T: float or double.
template <class T>
ValueType ValueTypeOf() {
  return {.name = std::is_same_v<T, float> ? "float" : "double", .suffix = kSuffix<T>, .literal = &LiteralOf<T>};
}

// Returns an expression for an elementwise step. operands: names of variables. NaN passes as in the CPU's kernels
// (nn/kernels/edge_region_values.cc).
std::string FormulaOf(const RegionStep& step, const std::array<std::string, 3>& operands, const ValueType& type) {
  return absl::Substitute(TextOf(step), operands[0], operands[1], operands[2], type.literal(step.x),
                          type.literal(step.y), type.suffix);
}

// The place where the rows of a step are stored: row r begins at array[r * stride + before].
struct Place {
  std::string array;
  int64_t stride = 1, before = 0;
};

// Returns an expression for one element. row, column: expressions; empty means 0.
std::string ElementOf(const Place& place, const std::string& row, const std::string& column) {
  std::vector<std::string> terms;
  if (!row.empty()) terms.push_back(place.stride == 1 ? row : absl::StrCat(row, " * ", place.stride));
  if (place.before != 0) terms.push_back(absl::StrCat(place.before));
  if (!column.empty()) terms.emplace_back(column);
  return absl::StrCat(place.array, "[", terms.empty() ? "0" : absl::StrJoin(terms, " + "), "]");
}

// Builds indented text, line by line.
class Lines {
 public:
  void Add(const auto&... parts) { absl::StrAppend(&text_, std::string(2 * depth_, ' '), parts..., "\n"); }
  void Open(const auto&... parts) {
    Add(parts..., " {");
    ++depth_;
  }
  void Close() {
    --depth_;
    Add("}");
  }
  void Append(const std::vector<std::string>& lines) {
    for (const std::string& line : lines) Add(line);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  size_t depth_ = 0;
};

bool IsReduction(RegionOp op) { return op == RegionOp::kSum || op == RegionOp::kMax || op == RegionOp::kMin; }
// Returns true if readers of a step load its stored values, false if they compute them again.
bool IsStored(RegionOp op) { return IsReduction(op) || op == RegionOp::kRowSum; }

// The range of a loop. kTarget: the columns of a target. kReduction: the columns, with the target's edges in an inner
// loop. kEdge: the target's edges and the columns at once.
enum class LoopKind : uint8_t { kTarget, kReduction, kEdge };

// The common properties of all steps of one loop. A value that several steps of a loop read is computed once.
struct KernelLoop {
  int32_t phase = 0;
  LoopKind kind = LoopKind::kTarget;
  int32_t width = 1;
  int32_t summed = 0;  // for row sums, the width of the operand; 0 for other steps
  auto operator<=>(const KernelLoop&) const = default;
};

// The loops of a kernel in their order, and the memory that the loops write.
struct KernelPlan {
  explicit KernelPlan(const EdgeRegion& of);

  const RegionStep& At(int32_t step) const { return region.steps[static_cast<size_t>(step)]; }
  // Returns the step that computes the values of a detached step.
  int32_t Root(int32_t step) const {
    while (At(step).op == RegionOp::kDetach) step = At(step).a;
    return step;
  }
  // Returns the step whose variable a reader uses. Within a target's loops, a kExpand step has the values of its
  // operand.
  int32_t Source(int32_t step) const {
    while (At(step).op == RegionOp::kDetach || At(step).op == RegionOp::kExpand) step = At(step).a;
    return step;
  }

  const EdgeRegion& region;
  std::map<KernelLoop, std::vector<int32_t>> loops;
  std::vector<std::vector<Place>> written;  // for each step, all places to which its values are written
  int64_t target_columns = 0, edge_columns = 0;
  int32_t widest = 1;
  bool knows_edges = false;  // true if a line needs `begin` and `end`, the range of the target's edges

 private:
  std::vector<char> ReadSteps() const;
  void AddLoop(int32_t step, int32_t phase);
};

KernelPlan::KernelPlan(const EdgeRegion& of) : region(of), written(of.steps.size()) {
  for (size_t k = 0; k < region.outputs.size(); ++k) {
    const int32_t step = Root(region.outputs[k]);
    written[static_cast<size_t>(step)].push_back({.array = absl::StrCat("output", k), .stride = At(step).width});
  }
  const std::vector<char> read = ReadSteps();
  std::vector<int32_t> ready(region.steps.size(), 0);  // for each step, the first phase that may read it
  for (size_t i = 0; i < region.steps.size(); ++i) {
    const RegionStep& s = region.steps[i];
    if (!read[i]) continue;
    for (const int32_t o : s.operands()) {
      if (o != -1) ready[i] = std::max(ready[i], ready[static_cast<size_t>(o)]);
    }
    if (IsStored(s.op) && written[i].empty()) {
      int64_t& columns = s.level == RegionLevel::kEdge ? edge_columns : target_columns;
      written[i].push_back(
          {.array = s.level == RegionLevel::kEdge ? "edge_values" : "target_values", .before = columns});
      columns += s.width;
    }
    if (!written[i].empty()) AddLoop(static_cast<int32_t>(i), ready[i]);
    if (s.op == RegionOp::kCount) knows_edges = true;
    if (IsStored(s.op)) ++ready[i];
  }
  for (std::vector<Place>& places : written) {
    for (Place& place : places) {
      if (place.array == "target_values") place.stride = target_columns;
      if (place.array == "edge_values") place.stride = edge_columns;
    }
  }
}

// Returns the steps on which outputs depend.
std::vector<char> KernelPlan::ReadSteps() const {
  std::vector<char> read(region.steps.size(), 0);
  for (const int32_t o : region.outputs) read[static_cast<size_t>(o)] = 1;
  for (size_t i = read.size(); i-- > 0;) {
    if (!read[i]) continue;
    for (const int32_t o : region.steps[i].operands()) {
      if (o != -1) read[static_cast<size_t>(o)] = 1;
    }
  }
  return read;
}

void KernelPlan::AddLoop(int32_t step, int32_t phase) {
  const RegionStep& s = At(step);
  const LoopKind kind = IsReduction(s.op)               ? LoopKind::kReduction
                        : s.level == RegionLevel::kEdge ? LoopKind::kEdge
                                                        : LoopKind::kTarget;
  const int32_t summed = s.op == RegionOp::kRowSum ? At(s.a).width : 0;
  loops[{phase, kind, s.width, summed}].push_back(step);
  widest = std::max(widest, s.width);
  if (kind != LoopKind::kTarget) knows_edges = true;
}

// Writes lines that compute the values of steps at one column of a loop, each value once.
class ColumnValues {
 public:
  // column: the loop's variable, which runs over `width` columns.
  ColumnValues(const KernelPlan& plan, const ValueType& type, const std::string& column, int32_t width)
      : plan_(plan), type_(type), column_(column), width_(width) {}

  // Returns the variable that holds a step's value after the lines have run.
  std::string Of(int32_t step);

  // of_target() returns the lines that do not depend on the edge. of_edge() returns the lines for edge e.
  const std::vector<std::string>& of_target() const { return of_target_; }
  const std::vector<std::string>& of_edge() const { return of_edge_; }
  bool reads_edge() const { return reads_edge_; }

 private:
  // Returns the column of a step with `width` columns. If the step is narrower than the loop, several columns share a
  // value.
  std::string ColumnOf(int32_t width) const {
    if (width == 1) return "";
    return width == width_ ? column_ : absl::StrCat(column_, " / ", width_ / width);
  }
  std::string RowOfEdge() {
    reads_edge_ = true;
    return "e";
  }
  std::string RowOfIndex(int32_t index);
  void AddLine(int32_t step);
  std::string ExpressionOf(int32_t step);

  const KernelPlan& plan_;
  const ValueType& type_;
  const std::string column_;
  const int32_t width_;
  std::map<int32_t, std::string> names_;  // variables of the steps whose lines are written
  std::map<int32_t, std::string> rows_;   // for each index, the variable of the row number
  std::vector<std::string> of_target_, of_edge_;
  bool reads_edge_ = false;
};

std::string ColumnValues::Of(int32_t step) {
  std::set<int32_t> missing;
  std::vector<int32_t> open{step};
  while (!open.empty()) {
    const int32_t source = plan_.Source(open.back());
    open.pop_back();
    if (names_.contains(source) || !missing.insert(source).second || IsStored(plan_.At(source).op)) continue;
    for (const int32_t o : plan_.At(source).operands()) {
      if (o != -1) open.push_back(o);
    }
  }
  // Operands come before the steps that read them.
  for (const int32_t source : missing) AddLine(source);
  return names_.at(plan_.Source(step));
}

void ColumnValues::AddLine(int32_t step) {
  const std::string expression = ExpressionOf(step), name = absl::StrCat("v", step);
  std::vector<std::string>& lines = plan_.At(step).level == RegionLevel::kEdge ? of_edge_ : of_target_;
  lines.push_back(absl::StrCat("const ", type_.name, " ", name, " = ", expression, ";"));
  names_[step] = name;
}

std::string ColumnValues::RowOfIndex(int32_t index) {
  std::string& row = rows_[index];
  if (row.empty()) {
    row = absl::StrCat("r", index);
    of_edge_.push_back(absl::StrCat("const int64 ", row, " = index", index, "[", RowOfEdge(), "];"));
  }
  return row;
}

std::string ColumnValues::ExpressionOf(int32_t step) {
  const RegionStep& s = plan_.At(step);
  const std::string column = ColumnOf(s.width);
  if (IsStored(s.op)) {
    const Place& place = plan_.written[static_cast<size_t>(step)].front();
    return ElementOf(place, s.level == RegionLevel::kEdge ? RowOfEdge() : "t", column);
  }
  const Place input{.array = absl::StrCat("input", s.input), .stride = s.width};
  switch (s.op) {
    case RegionOp::kShared:
      return ElementOf(input, "", column);
    case RegionOp::kTarget:
      return ElementOf(input, "t", column);
    case RegionOp::kEdge:
      return ElementOf(input, RowOfEdge(), column);
    case RegionOp::kGather:
      return ElementOf(input, RowOfIndex(s.index), column);
    case RegionOp::kConstant:
      return type_.literal(s.x);
    case RegionOp::kCount:
      return absl::StrCat("(", type_.name, ")(end - begin)");
    default:
      break;
  }
  std::array<std::string, 3> operands;
  for (size_t k = 0; k < operands.size(); ++k) {
    if (const int32_t o = s.operands()[k]; o != -1) operands[k] = names_.at(plan_.Source(o));
  }
  return FormulaOf(s, operands, type_);
}

// Writes the loops of a kernel.
class LoopWriter {
 public:
  LoopWriter(const KernelPlan& plan, const ValueType& type, int32_t threads, Lines& lines)
      : plan_(plan), type_(type), threads_(threads), lines_(lines) {}

  void Write(const KernelLoop& loop, const std::vector<int32_t>& steps) {
    switch (loop.kind) {
      case LoopKind::kTarget:
        OpenColumns(loop);
        WriteValues(loop, steps, "t");
        return lines_.Close();
      case LoopKind::kReduction:
        OpenColumns(loop);
        WriteReductions(loop, steps);
        return lines_.Close();
      case LoopKind::kEdge:
        OpenEdgeColumns(loop);
        WriteValues(loop, steps, "e");
        return lines_.Close();
    }
  }

 private:
  void OpenColumns(const KernelLoop& loop) {
    lines_.Open("for (int c = threadIdx.x; c < ", loop.width, "; c += ", threads_, ")");
  }
  void OpenEdgeColumns(const KernelLoop& loop) {
    const bool one = loop.width == 1;
    lines_.Open("for (int64 i = threadIdx.x; i < (int64)(end - begin) * ", loop.width, "; i += ", threads_, ")");
    lines_.Add("const int64 e = places[begin + i", one ? "" : absl::StrCat(" / ", loop.width), "];");
    if (!one) lines_.Add("const int c = (int)(i % ", loop.width, ");");
  }
  // row: the variable that holds the number of the row to write.
  void WriteValues(const KernelLoop& loop, const std::vector<int32_t>& steps, const std::string& row);
  void WriteReductions(const KernelLoop& loop, const std::vector<int32_t>& steps);

  // Declares the accumulators of a loop.
  void Declare(const std::vector<int32_t>& steps) {
    for (const int32_t step : steps) lines_.Add(type_.name, " v", step, " = 0;");
  }
  // Accumulates one value of the operand. For kMax and kMin, the first edge's value replaces the initial 0, which
  // only a target without edges keeps.
  void TakeIn(int32_t step, const std::string& value) {
    const RegionOp op = plan_.At(step).op;
    if (op == RegionOp::kSum || op == RegionOp::kRowSum) return lines_.Add("v", step, " += ", value, ";");
    const char* const wins = op == RegionOp::kMax ? " > v" : " < v";
    lines_.Add("if (p == begin || ", value, wins, step, " || ", value, " != ", value, ") v", step, " = ", value, ";");
  }
  void Store(const KernelLoop& loop, int32_t step, const std::string& row, const std::string& value) {
    for (const Place& place : plan_.written[static_cast<size_t>(step)]) {
      lines_.Add(ElementOf(place, row, loop.width == 1 ? "" : "c"), " = ", value, ";");
    }
  }
  std::vector<std::string> OperandsOf(const std::vector<int32_t>& steps, ColumnValues& values) const {
    std::vector<std::string> names;
    names.reserve(steps.size());
    for (const int32_t step : steps) names.push_back(values.Of(plan_.At(step).a));
    return names;
  }

  const KernelPlan& plan_;
  const ValueType& type_;
  const int32_t threads_;
  Lines& lines_;
};

void LoopWriter::WriteValues(const KernelLoop& loop, const std::vector<int32_t>& steps, const std::string& row) {
  if (loop.summed == 0) {
    ColumnValues values(plan_, type_, "c", loop.width);
    std::vector<std::string> names;
    names.reserve(steps.size());
    for (const int32_t step : steps) names.push_back(values.Of(step));
    lines_.Append(values.of_target());
    lines_.Append(values.of_edge());
    for (size_t i = 0; i < steps.size(); ++i) Store(loop, steps[i], row, names[i]);
    return;
  }
  ColumnValues values(plan_, type_, "k", loop.summed);
  const std::vector<std::string> operands = OperandsOf(steps, values);
  const int32_t group = loop.summed / loop.width;
  Declare(steps);
  if (loop.width == 1) {
    lines_.Open("for (int k = 0; k < ", group, "; ++k)");
  } else {
    lines_.Open("for (int k = c * ", group, "; k < (c + 1) * ", group, "; ++k)");
  }
  lines_.Append(values.of_target());
  lines_.Append(values.of_edge());
  for (size_t i = 0; i < steps.size(); ++i) TakeIn(steps[i], operands[i]);
  lines_.Close();
  for (const int32_t step : steps) Store(loop, step, row, absl::StrCat("v", step));
}

void LoopWriter::WriteReductions(const KernelLoop& loop, const std::vector<int32_t>& steps) {
  ColumnValues values(plan_, type_, "c", loop.width);
  const std::vector<std::string> operands = OperandsOf(steps, values);
  lines_.Append(values.of_target());
  Declare(steps);
  lines_.Open("for (int p = begin; p < end; ++p)");
  if (values.reads_edge()) lines_.Add("const int64 e = places[p];");
  lines_.Append(values.of_edge());
  for (size_t i = 0; i < steps.size(); ++i) TakeIn(steps[i], operands[i]);
  lines_.Close();
  for (const int32_t step : steps) Store(loop, step, "t", absl::StrCat("v", step));
}

std::string ParametersOf(const EdgeRegion& region, const char* type) {
  std::vector<std::string> parameters;
  parameters.reserve(static_cast<size_t>(region.num_inputs));
  for (int32_t i = 0; i < region.num_inputs; ++i) parameters.push_back(absl::StrCat("const ", type, "* input", i));
  for (int32_t i = 0; i < region.num_indices; ++i) parameters.push_back(absl::StrCat("const int64* index", i));
  for (const char* const p : {"const int* offsets", "const int* places", "int64 targets"}) parameters.emplace_back(p);
  for (const char* const p : {"* target_values", "* edge_values"}) parameters.push_back(absl::StrCat(type, p));
  for (size_t i = 0; i < region.outputs.size(); ++i) parameters.push_back(absl::StrCat(type, "* output", i));
  return absl::StrJoin(parameters, ",\n    ");
}

// Returns the number of threads in a block: enough for the widest step, in whole warps, but at most kMostThreads.
int32_t ThreadsFor(int32_t width) { return std::min((width + kWarp - 1) / kWarp * kWarp, kMostThreads); }

std::string SourceOf(const KernelPlan& plan, const ValueType& type, int32_t threads, const std::string& name) {
  Lines lines;
  for (const absl::string_view line : absl::StrSplit(ToString(plan.region), '\n', absl::SkipEmpty())) {
    lines.Add("// ", line);
  }
  lines.Add("typedef long long int64;");
  lines.Open("extern \"C\" __global__ void __launch_bounds__(", threads, ") ", name, "(\n    ",
             ParametersOf(plan.region, type.name), ")");
  lines.Add("const int64 t = blockIdx.x;");
  lines.Add("if (t >= targets) return;");
  if (plan.knows_edges) lines.Add("const int begin = offsets[t], end = offsets[t + 1];");
  LoopWriter writer(plan, type, threads, lines);
  int32_t phase = 0;
  for (const auto& [loop, steps] : plan.loops) {
    if (loop.phase != std::exchange(phase, loop.phase)) lines.Add("__syncthreads();");
    writer.Write(loop, steps);
  }
  lines.Close();
  return lines.text();
}

}  // namespace

template <class T>
absl::StatusOr<RegionKernel> ForwardKernelOf(const EdgeRegion& region, std::string_view name) {
  const int64_t pointers = int64_t{region.num_inputs} + region.num_indices + std::ssize(region.outputs);
  if (pointers > kMostRegionPointers) {
    return absl::InvalidArgumentError(absl::StrCat("a region of ", region.num_inputs, " inputs, ", region.num_indices,
                                                   " indices and ", region.outputs.size(), " outputs; a kernel takes ",
                                                   kMostRegionPointers, " of them together"));
  }
  const KernelPlan plan(region);
  const int32_t threads = ThreadsFor(plan.widest);
  return RegionKernel{.source = SourceOf(plan, ValueTypeOf<T>(), threads, std::string(name)),
                      .threads = static_cast<unsigned>(threads),
                      .target_columns = plan.target_columns,
                      .edge_columns = plan.edge_columns};
}

template absl::StatusOr<RegionKernel> ForwardKernelOf<float>(const EdgeRegion& region, std::string_view name);
template absl::StatusOr<RegionKernel> ForwardKernelOf<double>(const EdgeRegion& region, std::string_view name);

}  // namespace permafrost::nn::gpu
