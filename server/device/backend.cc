#include "device/backend.h"

#include <ATen/Parallel.h>

#include <array>

#include "absl/strings/str_cat.h"
#include "base/operators.h"
#include "base/resources.h"
#include "base/status.h"
#include "device/cpu/cpu_backend.h"
#include "device/cuda/cuda_backend.h"
#include "device/mps/mps_backend.h"
#include "device/torch_version.h"

namespace permafrost::device {
namespace {

struct Row {
  DeviceKind kind;
  // Returns Ok, or an error that says in one line what the device lacks on this machine. `index` is the card's
  // number.
  absl::Status (*find)(int index);
  absl::StatusOr<std::unique_ptr<Backend>> (*open)(int index, const BackendOptions& options);
};
absl::Status FindCpu(int /*index*/) { return absl::OkStatus(); }
absl::Status FindMps(int /*index*/) {
  return HasMps() ? absl::OkStatus() : absl::FailedPreconditionError("this machine or this libtorch has no MPS");
}
// kAuto takes the first of these devices that is present.
constexpr std::array<Row, 3> kBackends{
    {{DeviceKind::kMps, FindMps, [](int, const BackendOptions& options) { return MakeMpsBackend(options); }},
     {DeviceKind::kCuda, FindCuda,
      [](int index, const BackendOptions&) -> absl::StatusOr<std::unique_ptr<Backend>> {
        return MakeCudaBackend(index);
      }},
     {DeviceKind::kCpu, FindCpu,
      [](int, const BackendOptions&) -> absl::StatusOr<std::unique_ptr<Backend>> { return MakeCpuBackend(); }}}};

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capturer::CaptureRung(const StepProgram& /*program*/,
                                                                              const BatchInputs& /*inputs*/,
                                                                              const ProbeInputs& /*probes*/) {
  return absl::UnimplementedError("this device records no steps");
}

absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(const DeviceChoice& choice, const BackendOptions& options) {
  PF_RETURN_IF_ERROR(CheckTorchVersion());
  for (const Row& row : kBackends) {
    if (choice.kind != DeviceKind::kAuto && choice.kind != row.kind) continue;
    const absl::Status found = row.find(choice.index);
    if (found.ok()) return row.open(choice.index, options);
    if (choice.kind == DeviceKind::kAuto) continue;
    return absl::FailedPreconditionError(absl::StrCat("device: ", DeviceText(choice),
                                                      " is not present here: ", found.message(),
                                                      "; cpu is always there, auto takes the best present"));
  }
  return absl::InternalError("device: no row of the table is always present");
}

int UseThreads(int threads, TorchThreads torch_threads) {
  const int count = threads > 0 ? threads : AvailableCores();
  const bool one = torch_threads == TorchThreads::kOne;
  at::set_num_threads(one ? 1 : count);
  SetOperatorThreads(one ? count : 0);
  return count;
}

}  // namespace permafrost::device
