#include "device/backend.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/cores.h"
#include "base/status.h"
#include "base/string_view.h"
#include "device/cpu/cpu_backend.h"
#include "device/cuda/cuda_backend.h"
#include "device/mps/mps_backend.h"
#include "device/torch_version.h"

namespace permafrost::device {
namespace {

struct Row {
  DeviceKind kind;
  bool (*present)();
  absl::StatusOr<std::unique_ptr<Backend>> (*open)(const BackendOptions& options);
};
template <std::unique_ptr<Backend> (*make)()>
absl::StatusOr<std::unique_ptr<Backend>> Plain(const BackendOptions& /*options*/) {
  return make();
}
// In the order in which kAuto takes them.
constexpr std::array<Row, 3> kBackends{{{DeviceKind::kMps, HasMps, MakeMpsBackend},
                                        {DeviceKind::kCuda, HasCuda, Plain<MakeCudaBackend>},
                                        {DeviceKind::kCpu, [] { return true; }, Plain<MakeCpuBackend>}}};

}  // namespace

absl::StatusOr<std::unique_ptr<graphcache::Executable>> Capturer::CaptureRung(const StepProgram& /*program*/,
                                                                              const BatchInputs& /*inputs*/,
                                                                              const ProbeInputs& /*probes*/) {
  return absl::UnimplementedError("this device records no steps");
}

absl::StatusOr<std::unique_ptr<Backend>> OpenBackend(DeviceKind kind, const BackendOptions& options) {
  PF_RETURN_IF_ERROR(CheckTorchVersion());
  const auto found = std::ranges::find_if(
      kBackends, [kind](const Row& row) { return (kind == DeviceKind::kAuto || kind == row.kind) && row.present(); });
  if (found != kBackends.end()) return found->open(options);
  return absl::FailedPreconditionError(absl::StrCat("device: ", AbslView(kDeviceNames.Name(kind)),
                                                    " is not present here, or this libtorch was built without it; cpu "
                                                    "is always there, auto takes the best present"));
}

int UseThreads(int threads) {
  const int count = threads > 0 ? threads : AvailableCores();
  at::set_num_threads(count);
  return count;
}

}  // namespace permafrost::device
