#include "train/step_compiler.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::train {
namespace {

// Step numbers of the first two probes, and so on. They catch a step that keeps the number on the host.
constexpr std::array<int64_t, device::kDynamicProbes> kProbeSteps{0, 1, 5, 2};
constexpr int64_t kRungStep = 3;

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> StepCompiler::Capture(Mode mode, const BatchShape& shape) {
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, shape));
  return capturer_->Capture(*programs_[static_cast<size_t>(mode)], *probes[0]->TakeInputs(kProbeSteps[0]),
                            *probes[1]->TakeInputs(kProbeSteps[1]));
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> StepCompiler::CaptureDynamic(Mode mode) {
  return capturer_->CaptureDynamic(*programs_[static_cast<size_t>(mode)],
                                   [&](size_t probe) -> absl::StatusOr<const graphcache::StepInputs*> {
                                     PF_ASSIGN_OR_RETURN(HostBatch * batch, task_.DynamicProbe(mode, probe));
                                     return batch->TakeInputs(kProbeSteps[probe]);
                                   });
}

absl::StatusOr<std::unique_ptr<graphcache::Executable>> StepCompiler::CaptureRung(Mode mode, const BatchShape& shape) {
  bool& resists = resists_[static_cast<size_t>(mode)];
  if (resists || graphcache::AtLeastDynamic(shape) != shape || !NoDynamicReason().empty()) return Capture(mode, shape);
  auto made = capturer_->CaptureRung(
      *programs_[static_cast<size_t>(mode)],
      [&]() -> absl::StatusOr<const graphcache::StepInputs*> {
        PF_ASSIGN_OR_RETURN(HostBatch * batch, task_.RungProbe(mode, shape));
        return batch->TakeInputs(kRungStep);
      },
      [&](size_t probe) -> absl::StatusOr<const graphcache::StepInputs*> {
        PF_ASSIGN_OR_RETURN(HostBatch * batch, task_.SmallProbe(mode, probe));
        return batch->TakeInputs(kProbeSteps[probe]);
      });
  if (made.ok() || GetReason(made.status()).reason != graphcache::kGraphBreakReason) return made;
  resists = true;
  log_(absl::StrCat("each rung of the ladder is recorded for itself, which takes longer: ", made.status().message()));
  return Capture(mode, shape);
}

absl::Status StepCompiler::WarmUp(Mode mode, const BatchShape& shape) {
  if (!backend_.keeps_graphs()) return absl::OkStatus();
  PF_ASSIGN_OR_RETURN(const auto probes, task_.Probes(mode, shape));
  return capturer_->WarmUp(*programs_[static_cast<size_t>(mode)], *probes[0]->TakeInputs(kProbeSteps[0]));
}

std::string OneShapeReason(DeviceKind device) {
  return absl::StrCat("executables of ", AbslView(kDeviceNames.Name(device)), " are of one shape each");
}

std::string NoDynamicReason(const device::Backend& backend, const Task& task) {
  if (!backend.records()) return OneShapeReason(backend.kind());
  return task.NoDynamicReason();
}

absl::StatusOr<graphcache::StepResult> StepCompiler::RunEager(Mode mode, const graphcache::StepInputs& inputs) {
  return std::make_shared<const graphcache::StepOutputs>(
      capturer_->RunEager(*programs_[static_cast<size_t>(mode)], inputs));
}

}  // namespace permafrost::train
