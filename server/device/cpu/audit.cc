#include "device/cpu/audit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "base/string_view.h"
#include "collective/group.h"
#include "device/cpu/tape.h"
#include "device/cpu/tape_compare.h"
#include "device/step_program.h"
#include "graphcache/findings.h"

namespace permafrost::device {
namespace {

using Tensors = std::vector<at::Tensor>;

// An operator of a step, and fingerprints of the tensors that it made or wrote.
struct Performed {
  std::string op;
  std::vector<Bits> results;
};
using Trace = std::map<size_t, Performed>;  // by place

// Returns true if the operator leaves its result uninitialised, so that its bytes may have any value.
bool LeavesUnset(std::string_view op) {
  return absl::StartsWith(AbslView(op), "aten::empty") || absl::StartsWith(AbslView(op), "aten::new_empty") ||
         absl::StartsWith(AbslView(op), "aten::resize");
}

Bits LayoutOf(const at::Tensor& tensor) {
  std::vector<int64_t> layout = tensor.strides().vec();
  layout.push_back(tensor.storage_offset());
  return {tensor.scalar_type(), tensor.sizes().vec(), Hash128(layout.data(), layout.size() * sizeof(int64_t))};
}

void AppendTensors(const c10::IValue& value, Tensors& out) {
  if (value.isTensor() && value.toTensor().defined()) {
    out.push_back(value.toTensor());
  } else if (value.isTensorList()) {
    for (const c10::IValue& element : value.toListRef()) AppendTensors(element, out);
  }
}

// Returns a watcher that fingerprints the tensors that each operator makes or writes. For views and uninitialised
// tensors it notes only the layout.
CallWatcher Tracer(Trace& trace) {
  return [&trace](size_t place, const c10::OperatorHandle& op, torch::jit::Stack& stack,
                  absl::FunctionRef<void()> perform) {
    const c10::FunctionSchema& schema = op.schema();
    const auto& arguments = schema.arguments();
    const auto first = stack.end() - static_cast<std::ptrdiff_t>(arguments.size());
    Tensors written, made;
    for (size_t a = 0; a < arguments.size(); ++a) {
      const c10::AliasInfo* alias = arguments[a].alias_info();
      if (alias != nullptr && alias->isWrite()) AppendTensors(first[static_cast<std::ptrdiff_t>(a)], written);
    }
    perform();
    const at::AutoDispatchBelowADInplaceOrView below;
    std::for_each(stack.end() - static_cast<std::ptrdiff_t>(schema.returns().size()), stack.end(),
                  [&](const c10::IValue& value) { AppendTensors(value, made); });
    Performed performed{op.operator_name().name, {}};
    const bool layout_only = ReturnsViews(schema) || LeavesUnset(performed.op);
    for (const at::Tensor& tensor : made) {
      performed.results.push_back(layout_only ? LayoutOf(tensor) : BitsOf(tensor));
    }
    if (!layout_only) std::ranges::transform(written, std::back_inserter(performed.results), BitsOf);
    trace.insert_or_assign(place, std::move(performed));
  };
}

// The time that a replay spent in each operator and for each line.
struct Times {
  std::map<std::string, graphcache::OperatorTime> operators;  // by schema name
  std::vector<graphcache::LineTime> lines;                    // in the order of the executable's lines
};

// Returns a watcher that adds up the time of each operator and notes its matrix products.
CallWatcher Timer(const CpuExecutable& executable, Times& times, StepProducts& products) {
  return [&](size_t place, const c10::OperatorHandle& op, torch::jit::Stack& stack, absl::FunctionRef<void()> perform) {
    products.Add(op, std::span(stack).last(op.schema().arguments().size()));
    graphcache::OperatorTime& time = times.operators[op.operator_name().name];
    const CpuExecutable::Origin origin = executable.origins()[place];
    graphcache::LineTime& line = times.lines[origin.line];
    const Stopwatch watch;
    perform();
    const double seconds = absl::ToDoubleSeconds(watch.Elapsed());
    time.seconds += seconds;
    (origin.is_backward ? line.backward_seconds : line.forward_seconds) += seconds;
    ++time.calls;
  };
}

// Returns the operators by time, the longest first.
std::vector<graphcache::OperatorTime> InOrder(const std::map<std::string, graphcache::OperatorTime>& times) {
  std::vector<graphcache::OperatorTime> rows;
  for (const auto& [op, time] : times) {
    rows.push_back(time);
    rows.back().op = op;
  }
  std::ranges::stable_sort(rows, std::ranges::greater(), &graphcache::OperatorTime::seconds);
  return rows;
}

// Returns the lines by time, the longest first. Leaves out the empty line and lines that took no time. All lines
// after the 100th are summed in one last row.
std::vector<graphcache::LineTime> InOrder(std::vector<graphcache::LineTime> times,
                                          const std::vector<std::string>& lines) {
  for (size_t i = 0; i < times.size(); ++i) times[i].line = lines[i];
  times.erase(times.begin());
  std::erase_if(times, [](const graphcache::LineTime& time) { return time.seconds() == 0; });
  std::ranges::stable_sort(times, std::ranges::greater(), &graphcache::LineTime::seconds);
  constexpr size_t kMostLines = 100;
  if (times.size() <= kMostLines) return times;
  const size_t rest = times.size() - kMostLines;
  graphcache::LineTime others{.line = absl::StrCat(rest, rest == 1 ? " other line" : " other lines")};
  for (const graphcache::LineTime& time : std::span(times).subspan(kMostLines)) {
    others.forward_seconds += time.forward_seconds;
    others.backward_seconds += time.backward_seconds;
  }
  times.resize(kMostLines);
  times.push_back(std::move(others));
  return times;
}

std::string ResultText(size_t index, const Bits& replay, const Bits& step) {
  if (replay.type == step.type && replay.sizes == step.sizes) {
    return absl::StrCat("its result ", index, ", ", Describe(step.type, step.sizes), ", has other bits in the replay");
  }
  return absl::StrCat("its result ", index, " is ", Describe(step.type, step.sizes), ", and ",
                      Describe(replay.type, replay.sizes), " in the replay");
}

// Compares each operator of the replay with the operator at the same place of the step. Returns the first one that is
// another operator or has another result; nullopt if there is none.
std::optional<graphcache::Difference> FirstOperator(const Trace& replay, const Trace& step) {
  for (const auto& [place, ours] : replay) {
    const auto theirs = step.find(place);
    if (theirs == step.end() || theirs->second.op != ours.op) {
      return graphcache::Difference{ours.op,
                                    absl::StrCat("it is operator ", place, " of the replay, and the step runs ",
                                                 theirs == step.end() ? "none there" : AbslView(theirs->second.op))};
    }
    const std::vector<Bits>&made = ours.results, &wanted = theirs->second.results;
    for (size_t i = 0; i < std::min(made.size(), wanted.size()); ++i) {
      if (made[i] != wanted[i]) return graphcache::Difference{ours.op, ResultText(i, made[i], wanted[i])};
    }
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<graphcache::AuditedStep> AuditOnCpu(CpuExecutable& executable, const StepProgram& program,
                                                   const graphcache::StepInputs& inputs, Arena& arena) {
  SavedState saved(program.state);
  collective::Rerun rerun;
  graphcache::AuditedStep audited;
  Times times;
  times.lines.resize(executable.lines().size());
  StepProducts products;
  Stopwatch watch;
  Tensors outputs = executable.ReplayWatched(inputs, Timer(executable, times, products));
  audited.replay_seconds = absl::ToDoubleSeconds(watch.Elapsed());
  audited.operators = InOrder(times.operators);
  audited.lines = InOrder(std::move(times.lines), executable.lines());
  const Left of_replay = LeftBy(program, outputs);

  const auto rewind = [&] {
    outputs.clear();
    arena.Release();
    saved.Rewind();
    rerun.Again();
  };
  rewind();
  watch.Restart();
  outputs = program.run(inputs);
  audited.eager_seconds = absl::ToDoubleSeconds(watch.Elapsed());
  const Left of_step = LeftBy(program, outputs);
  if (const std::optional<std::string> what = FirstDifference(program, of_replay, of_step)) {
    Trace replay, step;
    rewind();
    outputs = executable.ReplayWatched(inputs, Tracer(replay));
    rewind();
    outputs = Tape::Watch(Tracer(step), [&] { return program.run(inputs); });
    audited.difference = FirstOperator(replay, step);
    if (LeftBy(program, outputs) != of_step) {
      audited.difference = {
          "", absl::StrCat("the step, run eagerly twice from one state, leaves ", *what, " otherwise the second time")};
    } else if (!audited.difference) {
      audited.difference = {
          "", absl::StrCat("the replay left ", *what, " otherwise than the step; no operator of a second replay does")};
    }
  }
  audited.product_seconds = products.SecondsAlone();
  saved.Keep();
  audited.result = std::make_shared<const graphcache::StepOutputs>(std::move(outputs));
  return audited;
}

namespace {

// The number of timed runs per size. The shortest one counts, since disturbances only make a run longer.
constexpr int kRuns = 5;

bool IsMatrix(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().dim() == 2;
}

bool IsWeight(std::string_view argument) { return argument == "weight" || argument == "w1" || argument == "w2"; }

}  // namespace

void StepProducts::Add(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  const std::string& name = op.operator_name().name;
  if (graphcache::IsProduct(name)) {
    const size_t first = name == "aten::mm" ? 0 : 1;
    const at::Tensor &a = arguments[first].toTensor(), &b = arguments[first + 1].toTensor();
    ++counts_[{a.size(0), a.size(1), b.size(1)}];
    return;
  }
  if (arguments.empty() || !IsMatrix(arguments[0])) return;
  const int64_t rows = arguments[0].toTensor().size(0);
  const int64_t each = absl::EndsWith(name, "_backward") ? 2 : 1;
  for (size_t a = 0; a < arguments.size(); ++a) {
    if (!IsWeight(op.schema().arguments()[a].name()) || !IsMatrix(arguments[a])) continue;
    const at::Tensor& weight = arguments[a].toTensor();
    counts_[{rows, weight.size(1), weight.size(0)}] += each;
  }
}

double StepProducts::SecondsAlone() const {
  double seconds = 0;
  for (const auto& [sizes, count] : counts_) {
    const at::Tensor a = at::ones({sizes[0], sizes[1]}), b = at::ones({sizes[1], sizes[2]});
    absl::Duration least = absl::InfiniteDuration();
    for (int run = 0; run < kRuns; ++run) {
      const Stopwatch watch;
      at::mm(a, b);
      least = std::min(least, watch.Elapsed());
    }
    seconds += static_cast<double>(count) * absl::ToDoubleSeconds(least);
  }
  return seconds;
}

}  // namespace permafrost::device
