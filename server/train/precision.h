// Checks that a model's precision is to be had on a device.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "base/device.h"
#include "spec/model.h"

namespace permafrost::train {

// Refuses bfloat16 on a device that is no CPU, on a CPU that `can_round` says has no instruction for it, and with
// operators that are free of shapes. prefix: of the field, as "spec.". Threads: any.
absl::Status CheckPrecision(const spec::ModelOptions& model, DeviceKind device, bool can_round,
                            std::string_view prefix);

}  // namespace permafrost::train
