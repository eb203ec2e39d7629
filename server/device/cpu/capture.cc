#include "device/cpu/capture.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cpu/executable.h"
#include "device/cpu/step_state.h"
#include "device/cpu/tape.h"

namespace permafrost::device {
namespace {

using Tensors = std::vector<at::Tensor>;

// The first thing that a replay left otherwise than the step did.
std::optional<TapeBreak> Disagreement(const StepProgram& program, const Left& replay, const Left& step) {
  const std::optional<std::string> what = FirstDifference(program, replay, step);
  if (!what) return std::nullopt;
  return TapeBreak{"", absl::StrCat("a replay leaves ", *what,
                                    " otherwise than the step did: a part of the step is no dispatched operator")};
}

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureOnCpu(const StepProgram& program,
                                                                     const graphcache::StepInputs& first,
                                                                     const graphcache::StepInputs& second,
                                                                     Arena& arena) {
  arena.Release();
  SavedState saved(program.state);
  Tape tape(program.state);
  const Left after_first = LeftBy(program, tape.Record(first.tensors, [&] { return program.run(first); }));
  if (tape.broken()) return BreakStatus(*tape.broken());
  const Left after_second = LeftBy(program, tape.Compare(second.tensors, [&] { return program.run(second); }));
  if (tape.broken()) return BreakStatus(*tape.broken());

  auto executable = std::make_unique<CpuExecutable>(tape, program, arena);
  saved.Rewind();
  std::optional<TapeBreak> broken = Disagreement(program, LeftBy(program, executable->Learn(first)), after_first);
  if (!broken) {
    executable->Prepare();
    broken = Disagreement(program, LeftBy(program, executable->ReplayInSilence(second)), after_second);
  }
  if (!broken && executable->unplanned_allocations() > 0) {
    broken = TapeBreak{"", "an operator's temporary storage depends on values, for equal shapes"};
  }
  if (broken) return BreakStatus(*broken);
  return executable;
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamicOnCpu(const StepProgram& program,
                                                                            const ProbeInputs& probes, Arena& arena) {
  arena.Release();
  SavedState saved(program.state);
  std::vector<std::unique_ptr<Tape>> tapes;
  std::vector<Left> after;
  for (size_t k = 0; k < kDynamicProbes; ++k) {
    PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* inputs, probes(k));
    Tape& tape = *tapes.emplace_back(std::make_unique<Tape>(program.state));
    after.push_back(LeftBy(program, tape.Record(inputs->tensors, [&] { return program.run(*inputs); })));
    if (tape.broken()) return BreakStatus(*tape.broken());
  }
  StepSizes sizes;
  if (const auto broken = StepSizes::Find(tapes, sizes)) return BreakStatus(*broken);

  auto executable = std::make_unique<CpuExecutable>(*tapes.front(), program, arena, sizes);
  saved.Rewind();
  std::vector<int64_t> largest, size;
  for (size_t k = 0; k < kDynamicProbes; ++k) {
    PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* inputs, probes(k));
    PF_RETURN_IF_ERROR(sizes.Read(*inputs, k == 0 ? largest : size));
    const Tensors outputs = k == 0 ? executable->Learn(*inputs) : executable->ReplayInSilence(*inputs);
    if (const auto broken = Disagreement(program, LeftBy(program, outputs), after[k])) return BreakStatus(*broken);
    if (k == 0) {
      executable->Prepare();
    } else if (executable->unplanned_allocations() > 0 && std::ranges::equal(size, largest, std::less_equal<>())) {
      return BreakStatus({"", "an operator's temporary storage is larger for a smaller shape"});
    }
  }
  return executable;
}

}  // namespace permafrost::device
