#include "base/device.h"

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "base/status.h"

namespace permafrost {
namespace {

constexpr absl::string_view kDeviceFaultUrl = "permafrost/device-fault";

}  // namespace

absl::Status AsDeviceFault(absl::Status status) {
  status.SetPayload(kDeviceFaultUrl, absl::Cord());
  return AsTransient(std::move(status));
}

bool IsDeviceFault(const absl::Status& status) { return status.GetPayload(kDeviceFaultUrl).has_value(); }

}  // namespace permafrost
