#include "device/cpu/capture.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/cpu/executable.h"
#include "device/cpu/tape.h"

namespace permafrost::device {
namespace {

using Tensors = std::vector<at::Tensor>;

absl::Status BreakStatus(const TapeBreak& broken) {
  const std::string text = broken.op.empty() ? broken.why : absl::StrCat(broken.op, " ", broken.why);
  return WithReason(absl::FailedPreconditionError(absl::StrCat("the step cannot be captured: ", text)),
                    graphcache::kGraphBreakReason, {{"op", broken.op}, {"why", broken.why}});
}

Tensors Copy(const Tensors& tensors) {
  const at::NoGradGuard no_grad;
  Tensors copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& t : tensors) copies.push_back(t.detach().clone(at::MemoryFormat::Contiguous));
  return copies;
}

Tensors Copy(const std::vector<StateTensor>& state) {
  Tensors tensors;
  for (const StateTensor& s : state) tensors.push_back(s.value);
  return Copy(tensors);
}

void Restore(const std::vector<StateTensor>& state, const Tensors& copies) {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < state.size(); ++i) at::Tensor(state[i].value).copy_(copies[i]);
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().contiguous(), y = b.detach().contiguous();
  return x.sizes() == y.sizes() && x.scalar_type() == y.scalar_type() &&
         (x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0);
}

// Puts state and generator back at the end of its scope.
class Transaction {
 public:
  explicit Transaction(const std::vector<StateTensor>& state)
      : state_(state), start_(Copy(state)), generator_(at::detail::getDefaultCPUGenerator()) {
    const std::lock_guard lock(generator_.mutex());
    generator_state_ = generator_.get_state();
  }
  Transaction(const Transaction&) = delete;
  ~Transaction() { Rewind(); }
  void Rewind() {
    Restore(state_, start_);
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(generator_state_);
  }

 private:
  const std::vector<StateTensor>& state_;
  const Tensors start_;
  at::Generator generator_;
  at::Tensor generator_state_;
};

// What a step left.
struct Left {
  Tensors outputs, state;
};

Left Record(const StepProgram& program, const graphcache::StepInputs& inputs, Tape& tape) {
  tape.Record([&] { return program.run(inputs); });
  Tensors made;
  for (const size_t slot : tape.outputs()) made.push_back(tape.slots()[slot].tensor);
  return {Copy(made), Copy(program.state)};
}

// The first thing that a replay left otherwise than the recorded step.
std::optional<TapeBreak> Disagreement(const StepProgram& program, const Tensors& outputs, const Left& step) {
  const auto not_seen = [](const std::string& what) {
    return TapeBreak{"", absl::StrCat("a replay leaves ", what,
                                      " otherwise than the step did: a part of the step is no dispatched operator")};
  };
  for (size_t i = 0; i < program.state.size(); ++i) {
    if (!SameBits(program.state[i].value, step.state[i])) return not_seen(program.state[i].name);
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    if (!SameBits(outputs[i], step.outputs[i])) return not_seen(absl::StrCat("output ", i));
  }
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureOnCpu(const StepProgram& program,
                                                                     const graphcache::StepInputs& first,
                                                                     const graphcache::StepInputs& second,
                                                                     Arena& arena) {
  Transaction transaction(program.state);
  Left after_first, after_second;
  std::unique_ptr<CpuExecutable> executable;
  {
    // A tape keeps every tensor of its step alive; neither does for longer than it is read.
    Tape first_tape(first.tensors, program.state);
    after_first = Record(program, first, first_tape);
    if (first_tape.broken()) return BreakStatus(*first_tape.broken());
    {
      Tape second_tape(second.tensors, program.state);
      after_second = Record(program, second, second_tape);
      for (const auto& broken : {second_tape.broken(), Compare(first_tape, second_tape)}) {
        if (broken) return BreakStatus(*broken);
      }
    }
    executable = std::make_unique<CpuExecutable>(first_tape, program, arena);
  }
  transaction.Rewind();
  std::optional<TapeBreak> broken = Disagreement(program, executable->Learn(first), after_first);
  if (!broken) {
    executable->Prepare();
    broken = Disagreement(program, executable->ReplayInSilence(second), after_second);
  }
  if (!broken && executable->unplanned_allocations() > 0) {
    broken = TapeBreak{"", "an operator's temporary storage depends on values, for equal shapes"};
  }
  if (broken) return BreakStatus(*broken);
  return executable;
}

// One shape of a program that is run as it is.
class ShapedProgram final : public graphcache::Executable {
 public:
  explicit ShapedProgram(const StepProgram& program) : program_(program) {}
  absl::StatusOr<graphcache::StepResult> Replay(const graphcache::StepInputs& inputs) override {
    return std::make_shared<const graphcache::StepOutputs>(program_.run(inputs));
  }
  // What the backend keeps for this shape is not known here.
  int64_t bytes() const override { return static_cast<int64_t>(sizeof(*this)); }

 private:
  const StepProgram& program_;
};

}  // namespace

absl::Status CheckCapture(c10::Device device) { return device.is_cpu() ? CheckRecording() : absl::OkStatus(); }

absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capture(const StepProgram& program, c10::Device device,
                                                                const graphcache::StepInputs& first,
                                                                const graphcache::StepInputs& second, Arena& arena) {
  if (device.is_cpu()) return CaptureOnCpu(program, first, second, arena);
  return std::make_unique<ShapedProgram>(program);
}

void MarkPhase(int phase, const std::function<void(int)>& on_phase) {
  if (!Tape::NoteMark(phase) && on_phase) on_phase(phase);
}

}  // namespace permafrost::device
