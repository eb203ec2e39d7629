// The devices that Permafrost knows, by the names of flags, API and metrics.
#pragma once

#include "base/enum_names.h"

namespace permafrost {

enum class DeviceKind { kAuto, kCpu, kMps, kCuda };
inline constexpr EnumNames<DeviceKind, 4> kDeviceNames{
    {{{DeviceKind::kAuto, "auto"}, {DeviceKind::kCpu, "cpu"}, {DeviceKind::kMps, "mps"}, {DeviceKind::kCuda, "cuda"}}}};

}  // namespace permafrost
