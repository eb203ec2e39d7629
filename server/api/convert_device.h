// The device's state on the wire.
// Threads: pure functions.
#pragma once

#include "base/device.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::api {

v1::DeviceState DeviceStateToWire(const DeviceState& state);

}  // namespace permafrost::api
