#include "train/precision.h"

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::train {

absl::Status CheckPrecision(const spec::ModelOptions& model, DeviceKind device, bool can_round,
                            std::string_view prefix) {
  if (model.precision == spec::Precision::kFloat32) return absl::OkStatus();
  Violations violations;
  const auto refuse = [&](std::string_view why) {
    violations.Add(
        absl::StrCat(AbslView(prefix), "model.precision"),
        absl::StrCat(AbslView(spec::kPrecisionNames.Name(model.precision)), " ", AbslView(why), "; accepted: float32"));
  };
  if (device != DeviceKind::kCpu) {
    refuse(absl::StrCat("is computed on CPUs, and this server's device is ", AbslView(kDeviceNames.Name(device))));
  } else if (!can_round) {
    refuse("wants a processor with AVX512-BF16, which this server's has not");
  } else if (model.lowering == spec::Lowering::kShapeFree) {
    refuse("is given with lowering shape-free");
  }
  return violations.ToStatus();
}

}  // namespace permafrost::train
