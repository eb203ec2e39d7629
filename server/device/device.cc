#include "device/device.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>

#include "absl/strings/str_cat.h"
#include "base/cores.h"
#include "base/string_view.h"

namespace permafrost::device {
namespace {

bool Has(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
    case DeviceKind::kAuto:
      return true;
    case DeviceKind::kMps:
      return at::hasMPS();
    case DeviceKind::kCuda:
      return at::hasCUDA() && at::detail::getCUDAHooks().deviceCount() > 0;
  }
  return false;
}

}  // namespace

absl::StatusOr<c10::Device> OpenDevice(DeviceKind kind) {
  if (kind == DeviceKind::kAuto) {
    kind = Has(DeviceKind::kMps) ? DeviceKind::kMps : Has(DeviceKind::kCuda) ? DeviceKind::kCuda : DeviceKind::kCpu;
  }
  if (!Has(kind)) {
    return absl::FailedPreconditionError(absl::StrCat("device: ", AbslView(kDeviceNames.Name(kind)),
                                                      " is not present here, or this libtorch was built without it; "
                                                      "cpu is always there, auto takes the best present"));
  }
  switch (kind) {
    case DeviceKind::kMps:
      return c10::Device(c10::kMPS, 0);
    case DeviceKind::kCuda:
      return c10::Device(c10::kCUDA, 0);
    default:
      return c10::Device(c10::kCPU);
  }
}

DeviceKind KindOf(c10::Device device) {
  return device.is_mps() ? DeviceKind::kMps : device.is_cuda() ? DeviceKind::kCuda : DeviceKind::kCpu;
}

int UseThreads(int threads) {
  const int count = threads > 0 ? threads : AvailableCores();
  at::set_num_threads(count);
  return count;
}

void Synchronize(c10::Device device) {
  if (device.is_mps()) at::detail::getMPSHooks().deviceSynchronize();
  if (device.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
}

}  // namespace permafrost::device
