#include "device/cpu/cpu_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/resources.h"
#include "base/status.h"
#include "device/cpu/executable.h"
#include "device/cpu/storage.h"
#include "device/cpu/tape.h"
#include "device/step_program.h"

namespace permafrost::device {
namespace {

class CpuCapturer final : public Capturer {
 public:
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program,
                                                                  const graphcache::StepInputs& first,
                                                                  const graphcache::StepInputs& second) override {
    return CaptureOnCpu(program, first, second, arena_);
  }
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureDynamic(const StepProgram& program,
                                                                         const ProbeInputs& probes) override {
    return CaptureDynamicOnCpu(program, probes, arena_);
  }
  absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRung(const StepProgram& program,
                                                                      const BatchInputs& inputs,
                                                                      const ProbeInputs& probes) override {
    auto recorded = recorded_.find(&program);
    if (recorded == recorded_.end()) {
      PF_ASSIGN_OR_RETURN(RecordedStep step, RecordOnCpu(program, probes));
      recorded = recorded_.emplace(&program, std::move(step)).first;
    }
    PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* batch, inputs());
    auto made = CaptureRungOnCpu(program, *batch, recorded->second, arena_);
    if (!made.ok()) recorded_.erase(recorded);
    return made;
  }
  int64_t shared_bytes() const override { return static_cast<int64_t>(arena_.bytes()); }
  void GiveBackMemory() override { arena_.Release(); }

 private:
  Arena arena_;
  std::map<const StepProgram*, RecordedStep> recorded_;  // by program of a ladder: training and evaluation
};

class CpuBackend final : public Backend {
 public:
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  c10::Device device() const override { return c10::Device(c10::kCPU); }
  void Synchronize() const override {}
  absl::Status CheckCapture() const override { return CheckRecording(); }
  bool records() const override { return true; }
  std::unique_ptr<Capturer> MakeCapturer() const override { return std::make_unique<CpuCapturer>(); }
  StorageUse storage() const override { return ReadStorageUse(); }
  void RestartStoragePeak() const override { device::RestartStoragePeak(); }
  DeviceState Observe() const override {
    DeviceState state;
    state.memory.allocated = ReadStorageUse().bytes;
    state.memory.resident = static_cast<int64_t>(ResidentBytes());
    state.no_graph_entries_reason = "the CPU keeps no compiled graphs but the executables of jobs";
    return state;
  }
  int64_t memory_bytes() const override { return static_cast<int64_t>(MemoryLimit()); }
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend() {
  InstallStorageAllocator();
  return std::make_unique<CpuBackend>();
}

namespace {

using Tensors = std::vector<at::Tensor>;

// Compares the state and outputs after a replay with those after the step. Returns the first difference; nullopt if
// there is none.
std::optional<TapeBreak> Disagreement(const StepProgram& program, const Left& replay, const Left& step) {
  const std::optional<std::string> what = FirstDifference(program, replay, step);
  if (!what) return std::nullopt;
  return TapeBreak{"", absl::StrCat("a replay leaves ", *what,
                                    " otherwise than the step did: a part of the step is no dispatched operator")};
}

// Runs and records `program` on each of the first `count` probes, one after the other. If `after` is not null,
// appends to it the state and outputs after each run.
absl::StatusOr<RecordedStep> RecordEach(const StepProgram& program, const ProbeInputs& probes, size_t count,
                                        std::vector<Left>* after) {
  std::vector<std::unique_ptr<Tape>> tapes;
  for (size_t k = 0; k < count; ++k) {
    PF_ASSIGN_OR_RETURN(const graphcache::StepInputs* inputs, probes(k));
    Tape& tape = *tapes.emplace_back(std::make_unique<Tape>(program.state));
    const Tensors outputs = tape.Record(inputs->tensors, [&] { return program.run(*inputs); });
    if (tape.broken()) return BreakStatus(*tape.broken());
    if (after != nullptr) after->push_back(LeftBy(program, outputs));
  }
  RecordedStep recorded;
  if (const auto broken = StepSizes::Find(tapes, recorded.sizes)) return BreakStatus(*broken);
  recorded.tape = std::move(tapes.front());
  return recorded;
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
  std::vector<Left> after;
  PF_ASSIGN_OR_RETURN(const RecordedStep recorded, RecordEach(program, probes, kDynamicProbes, &after));
  const StepSizes& sizes = recorded.sizes;
  auto executable = std::make_unique<CpuExecutable>(*recorded.tape, program, arena, sizes);
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

absl::StatusOr<RecordedStep> RecordOnCpu(const StepProgram& program, const ProbeInputs& probes) {
  const SavedState saved(program.state);
  return RecordEach(program, probes, kLadderProbes, nullptr);
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureRungOnCpu(const StepProgram& program,
                                                                         const graphcache::StepInputs& inputs,
                                                                         RecordedStep& recorded, Arena& arena) {
  Tape& tape = *recorded.tape;
  std::vector<int64_t> size;
  bool larger = recorded.planned.empty();
  if (recorded.sizes.Read(inputs, size).ok() && !larger) {
    larger = !std::ranges::equal(size, recorded.planned, std::less_equal<>());
  }
  SavedState saved(program.state);
  Left after;
  const auto compare = [&] {
    after = LeftBy(program, recorded.sizes.Compare(tape, inputs, [&] { return program.run(inputs); }));
  };
  if (larger) {
    arena.Release();
    compare();
  } else {
    // The step itself also allocates in the arena, since freeing the arena and allocating it again takes longer than
    // a small step.
    arena.Reserve(recorded.plan.size());
    recorded.plan.ServeAnySize(arena, compare);
  }
  if (tape.broken()) return BreakStatus(*tape.broken());
  // The replay must itself compute all values that it leaves. So the arena is overwritten, since it still holds the
  // values that the step computed.
  if (!larger) std::memset(arena.data(), 0xFF, std::min(arena.bytes(), recorded.plan.size()));

  auto executable = std::make_unique<CpuExecutable>(tape, program, arena, recorded.sizes);
  const auto replay = [&](bool learn) {
    saved.Rewind();
    const Tensors outputs = learn ? executable->Learn(inputs) : executable->ReplayInSilence(inputs);
    if (learn) executable->Prepare();
    return Disagreement(program, LeftBy(program, outputs), after);
  };
  std::optional<TapeBreak> broken;
  if (larger) {
    broken = replay(/*learn=*/true);
  } else {
    executable->TakePlan(recorded.plan);
    executable->Prepare();
  }
  if (!broken) broken = replay(/*learn=*/false);
  if (!broken && !larger && executable->unplanned_allocations() > 0) {
    // The allocations do not fit in the larger executable's plan, so this executable learns its own.
    broken = replay(/*learn=*/true);
    if (!broken) broken = replay(/*learn=*/false);
  }
  if (!broken && executable->unplanned_allocations() > 0) {
    broken = TapeBreak{"", "an operator's temporary storage depends on values, for equal shapes"};
  }
  if (broken) return BreakStatus(*broken);
  if (larger) {
    recorded.plan = executable->plan();
    recorded.planned = std::move(size);
  }
  return executable;
}

}  // namespace permafrost::device
