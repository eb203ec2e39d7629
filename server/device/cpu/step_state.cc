#include "device/cpu/step_state.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <mutex>

#include "absl/strings/str_cat.h"

namespace permafrost::device {

SavedState::SavedState(const std::vector<StateTensor>& state)
    : state_(state), generator_(at::detail::getDefaultCPUGenerator()) {
  const at::NoGradGuard no_grad;
  for (const StateTensor& s : state) start_.push_back(s.value.detach().clone());
  const std::lock_guard lock(generator_.mutex());
  generator_state_ = generator_.get_state();
}

SavedState::~SavedState() {
  if (!keep_) Rewind();
}

void SavedState::Rewind() {
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < state_.size(); ++i) at::Tensor(state_[i].value).copy_(start_[i]);
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
