#include "train/step_compiler.h"

#include "base/status.h"

namespace permafrost::train {
namespace {

// Of the two probes: a step that keeps the number on the host would be caught.
constexpr std::array<int64_t, 2> kProbeSteps{0, 1};

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> StepCompiler::Capture(Mode mode, const BatchShape& shape) {
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, shape));
  std::array<const graphcache::StepInputs*, 2> inputs{};
  for (size_t i = 0; i < inputs.size(); ++i) {
    PF_ASSIGN_OR_RETURN(inputs[i], probes[i]->PadTo(shape, kProbeSteps[i]));
  }
  return capturer_->Capture(*programs_[static_cast<size_t>(mode)], *inputs[0], *inputs[1]);
}

absl::StatusOr<graphcache::StepResult> StepCompiler::RunEager(Mode mode, const graphcache::StepInputs& inputs) {
  return std::make_shared<const graphcache::StepOutputs>(programs_[static_cast<size_t>(mode)]->run(inputs));
}

}  // namespace permafrost::train
