#include "train/loop/careful_steps.h"

#include <ATen/ATen.h>

#include "base/status.h"

namespace permafrost::train {

std::string FindNotFinite(const std::vector<nn::NamedTensor>& tensors) {
  for (const nn::NamedTensor& named : tensors) {
    if (!named.value.is_floating_point() || named.value.numel() == 0) continue;
    if (!named.value.cpu().isfinite().all().item<bool>()) return named.name;
  }
  return {};
}

absl::Status NonFiniteError(const std::string& message) {
  return WithReason(absl::FailedPreconditionError(message), "NON_FINITE_LOSS");
}

void CarefulSteps::Keep() {
  if (kept_.empty()) {
    kept_ = nn::Clone(tensors_);
  } else {
    nn::CopyInto(tensors_, kept_);
  }
}

}  // namespace permafrost::train
