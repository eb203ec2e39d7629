// A captured step on the CPU. A replay calls the operators of a tape again, in order, below autograd. Views of state
// are made once, and operators whose results nothing reads are dropped. Storage is planned in the arena that all
// executables of a job share, so a replay allocates no storage. A dynamic executable serves every shape. Before each
// replay it sets the integers that follow from the inputs' sizes. Its plan is that of the largest shape. Every
// executable borrows program and arena.
// Threads: the device thread.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/cpu/storage.h"
#include "device/cpu/tape.h"
#include "device/cpu/tape_compare.h"
#include "device/step_program.h"
#include "graphcache/executable.h"

namespace permafrost::device {

class CpuExecutable final : public graphcache::Executable {
 public:
  // `tape` must not be broken. If `sizes` is given, it belongs to the tape's step, and the executable is dynamic.
  CpuExecutable(const Tape& tape, const StepProgram& program, Arena& arena,
                std::optional<StepSizes> sizes = std::nullopt);

  // Replays on the heap, to learn the storage plan. Call it once, before any other method. For a dynamic executable,
  // `inputs` must have the largest shape that is to be served without the heap. Returns the step's outputs.
  std::vector<at::Tensor> Learn(const graphcache::StepInputs& inputs);
  // Makes a dynamic executable use the plan of another executable of the same step. The plan must have been learned
  // at sizes at least as large as all sizes that this executable serves.
  void TakePlan(const StoragePlan& plan);
  const StoragePlan& plan() const { return plan_; }
  // Makes the arena large enough for the plan. No storage may be alive in the arena.
  void Prepare() { arena_.Reserve(plan_.size()); }
  // Replays without calling on_phase. Returns the step's outputs, valid until the next replay over the same arena. A
  // dynamic executable throws c10::Error if an input's type, number of dimensions or sizes contradict the capture.
  std::vector<at::Tensor> ReplayInSilence(const graphcache::StepInputs& inputs);
  // Same as ReplayInSilence, but calls `watch` in place of each operator, with the operator's place on the tape.
  std::vector<at::Tensor> ReplayWatched(const graphcache::StepInputs& inputs, const CallWatcher& watch);
  absl::StatusOr<graphcache::StepResult> Replay(const graphcache::StepInputs& inputs) override;
  absl::StatusOr<std::optional<graphcache::AuditedStep>> ReplayAudited(const graphcache::StepInputs& inputs) override;
  int64_t bytes() const override { return bytes_; }
  // origins()[i] tells which line called the operator at place i of the tape.
  struct Origin {
    uint32_t line = 0;  // the index in lines(); 0: no line of the user's
    bool is_backward = false;
  };
  const std::vector<Origin>& origins() const { return origins_; }
  const std::vector<std::string>& lines() const { return lines_; }

  // Returns how many storage allocations of the last replay came from the heap. The number can be above 0 if the
  // temporaries of an operator depend on values. It can also be above 0 if the inputs of a dynamic executable are
  // larger than those with which its plan was learned. Otherwise it is 0.
  int64_t unplanned_allocations() const { return unplanned_; }
  size_t num_calls() const { return calls_.size(); }

 private:
  // An argument that is filled in at each replay: one tensor or a list of tensors.
  struct Fill {
    uint32_t arg = 0;
    bool list = false, optional = false;  // list: it is a list; optional: its elements are optional
    std::vector<int32_t> slots;           // one slot, or one per element; -1: no tensor
  };
  struct Call {
    c10::OperatorHandle op;
    std::vector<c10::IValue> args;  // the other arguments
    std::vector<Fill> fills;
    std::vector<std::vector<uint32_t>> returns;
    std::vector<uint32_t> releases;  // slots that no later call uses
    uint32_t place = 0;              // the place on the tape
  };

  // An integer argument of a call. Its value follows from the sizes of the inputs.
  struct SizedInteger {
    uint32_t call = 0, arg = 0;
    std::optional<uint32_t> element;
    SizeSum value;
  };

  class Builder;
  void SetIntegers(const graphcache::StepInputs& inputs);
  std::vector<at::Tensor> Run(const graphcache::StepInputs& inputs, const std::function<void(int)>& on_phase);
  std::vector<at::Tensor> Serve(const graphcache::StepInputs& inputs, const std::function<void(int)>& on_phase);
  void Invoke(Call& call);
  int64_t CountBytes() const;

  const StepProgram& program_;
  Arena& arena_;
  std::vector<Call> calls_;
  std::vector<at::Tensor> values_;                     // by slot; state, numbers and hoisted views stay set
  std::vector<std::pair<uint32_t, uint32_t>> inputs_;  // (slot, input number)
  std::vector<uint32_t> output_slots_, made_outputs_;  // slots of all outputs; slots of outputs that are not state
  std::vector<Tape::Mark> marks_;
  std::vector<Origin> origins_;
  std::vector<std::string> lines_;
  std::optional<StepSizes> sizes_;  // set if the executable is dynamic
  std::vector<SizedInteger> integers_;
  std::vector<int64_t> sizes_now_, sizes_set_;  // the inputs' sizes now, and when integers_ were last set
  torch::jit::Stack stack_;
  const CallWatcher* watch_ = nullptr;  // set during a watched replay
  StoragePlan plan_;
  int64_t unplanned_ = 0;
  int64_t held_bytes_ = 0;  // bytes of tensors that only this executable keeps
  int64_t bytes_ = 0;
};

}  // namespace permafrost::device
