#include "device/cpu/capture.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
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

// Puts state and generator back at the end of its scope.
class Transaction {
 public:
  explicit Transaction(const std::vector<StateTensor>& state)
      : state_(state), generator_(at::detail::getDefaultCPUGenerator()) {
    const at::NoGradGuard no_grad;
    for (const StateTensor& s : state) start_.push_back(s.value.detach().clone());
    const std::lock_guard lock(generator_.mutex());
    generator_state_ = generator_.get_state();
  }
  Transaction(const Transaction&) = delete;
  ~Transaction() { Rewind(); }
  void Rewind() {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < state_.size(); ++i) at::Tensor(state_[i].value).copy_(start_[i]);
    const std::lock_guard lock(generator_.mutex());
    generator_.set_state(generator_state_);
  }

 private:
  const std::vector<StateTensor>& state_;
  Tensors start_;
  at::Generator generator_;
  at::Tensor generator_state_;
};

// The bits of a tensor, in 16 bytes instead of a copy.
struct Bits {
  c10::ScalarType type = c10::ScalarType::Undefined;
  std::vector<int64_t> sizes;
  Hash128Value hash;
  bool operator==(const Bits&) const = default;
};

Bits BitsOf(const at::Tensor& tensor) {
  const at::Tensor t = tensor.detach().contiguous();
  return {t.scalar_type(), t.sizes().vec(), Hash128(t.const_data_ptr(), t.nbytes())};
}

// What a step left.
struct Left {
  std::vector<Bits> outputs, state;
};

Left LeftBy(const StepProgram& program, const Tensors& outputs) {
  Left left;
  for (const at::Tensor& output : outputs) left.outputs.push_back(BitsOf(output));
  for (const StateTensor& s : program.state) left.state.push_back(BitsOf(s.value));
  return left;
}

// The first thing that a replay left otherwise than the step did.
std::optional<TapeBreak> Disagreement(const StepProgram& program, const Left& replay, const Left& step) {
  const auto not_seen = [](const std::string& what) {
    return TapeBreak{"", absl::StrCat("a replay leaves ", what,
                                      " otherwise than the step did: a part of the step is no dispatched operator")};
  };
  for (size_t i = 0; i < program.state.size(); ++i) {
    if (replay.state[i] != step.state[i]) return not_seen(program.state[i].name);
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    if (replay.outputs[i] != step.outputs[i]) return not_seen(absl::StrCat("output ", i));
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> CaptureOnCpu(const StepProgram& program,
                                                                     const graphcache::StepInputs& first,
                                                                     const graphcache::StepInputs& second,
                                                                     Arena& arena) {
  arena.Release();
  Transaction transaction(program.state);
  Tape tape(program.state);
  const Left after_first = LeftBy(program, tape.Record(first.tensors, [&] { return program.run(first); }));
  if (tape.broken()) return BreakStatus(*tape.broken());
  const Left after_second = LeftBy(program, tape.Compare(second.tensors, [&] { return program.run(second); }));
  if (tape.broken()) return BreakStatus(*tape.broken());

  auto executable = std::make_unique<CpuExecutable>(tape, program, arena);
  transaction.Rewind();
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
  Transaction transaction(program.state);
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
  transaction.Rewind();
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
