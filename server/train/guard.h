// The one place where exceptions of the math library become a Status.
#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "device/fault.h"

namespace permafrost::train {

// Calls `body`, which returns a Status or a StatusOr. An error that leaves the device unusable becomes a device fault
// (base/device.h).
template <class Body>
auto CatchTorch(Body&& body) -> decltype(body()) {
  try {
    return std::forward<Body>(body)();
  } catch (const c10::Error& e) {
    return device::StatusOf(e);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& e) {
    return device::StatusOf(e);
  }
}

}  // namespace permafrost::train
