#include "device/step_program.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <mutex>

#include "absl/strings/str_cat.h"
#include "base/buffer.h"
#include "device/cpu/tape.h"
#include "device/fault.h"

namespace permafrost::device {
namespace {

thread_local bool silent = false;

}  // namespace

void MarkPhase(int phase, const std::function<void(int)>& on_phase) {
  if (!Tape::NoteMark(phase) && !silent && on_phase) on_phase(phase);
}

void NoteLine(std::string_view line) { Tape::NoteLine(line); }

SilentPhases::SilentPhases() : outer_(silent) { silent = true; }

SilentPhases::~SilentPhases() { silent = outer_; }

namespace {

// Returns true if the host can read and write the tensor's bytes as one block.
bool IsPlain(const at::Tensor& tensor) { return tensor.is_cpu() && tensor.numel() > 0 && tensor.is_contiguous(); }

bool IsZero(const at::Tensor& tensor) {
  return IsPlain(tensor) && AreZero({static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes()});
}

}  // namespace

SavedState::SavedState(const std::vector<StateTensor>& state)
    : state_(state), generator_(at::detail::getDefaultCPUGenerator()) {
  const at::NoGradGuard no_grad;
  for (const StateTensor& s : state) start_.push_back(IsZero(s.value) ? at::Tensor() : s.value.detach().clone());
  const std::lock_guard lock(generator_.mutex());
  generator_state_ = generator_.get_state();
}

SavedState::~SavedState() {
  if (keep_) return;
  UnlessFatal([this] { Rewind(); });
}

void SavedState::Rewind() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < state_.size(); ++i) {
    at::Tensor value = state_[i].value;
    // A capture restores many small tensors several times, and a dispatched copy of each takes longer than copying
    // its bytes. The host can copy bytes only for tensors on the CPU.
    if (!start_[i].defined() && IsPlain(value)) {
      std::memset(value.mutable_data_ptr(), 0, value.nbytes());
    } else if (!start_[i].defined()) {
      value.zero_();
    } else if (IsPlain(value) && start_[i].is_contiguous()) {
      std::memcpy(value.mutable_data_ptr(), start_[i].const_data_ptr(), start_[i].nbytes());
    } else {
      value.copy_(start_[i]);
    }
  }
  const std::lock_guard lock(generator_.mutex());
  generator_.set_state(generator_state_);
}

Bits BitsOf(const at::Tensor& tensor) {
  const at::Tensor t = tensor.detach().contiguous();
  return {t.scalar_type(), t.sizes().vec(), Hash128(t.const_data_ptr(), t.nbytes())};
}

Left LeftBy(const StepProgram& program, const std::vector<at::Tensor>& outputs) {
  Left left;
  for (const at::Tensor& output : outputs) left.outputs.push_back(BitsOf(output));
  for (const StateTensor& s : program.state) left.state.push_back(BitsOf(s.value));
  return left;
}

std::optional<std::string> FirstDifference(const StepProgram& program, const Left& replay, const Left& step) {
  for (size_t i = 0; i < program.state.size(); ++i) {
    if (replay.state[i] != step.state[i]) return program.state[i].name;
  }
  for (size_t i = 0; i < step.outputs.size(); ++i) {
    if (i >= replay.outputs.size() || replay.outputs[i] != step.outputs[i]) return absl::StrCat("output ", i);
  }
  return std::nullopt;
}

}  // namespace permafrost::device
