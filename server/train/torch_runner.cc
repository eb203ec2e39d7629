#include "train/torch_runner.h"

#include <torch/headeronly/version.h>

#include "base/status.h"
#include "device/cpu/capture.h"
#include "device/cpu/storage.h"
#include "device/device.h"
#include "train/guard.h"
#include "train/trainer.h"

namespace permafrost::train {
namespace {

class TorchRunner final : public Runner {
 public:
  TorchRunner(c10::Device device, int threads) : device_(device), threads_(threads) {}

  absl::StatusOr<RunOutcome> Run(const RunRequest& request, RunContext& context) override {
    return CatchTorch([&]() -> absl::StatusOr<RunOutcome> {
      device::UseThreads(threads_);  // a setting of the calling thread
      const auto trainer = Trainer::Create(request, device_, threads_, context);
      if (absl::IsCancelled(trainer.status())) {
        const bool cancel = context.stop_requested() == StopRequest::kCancel;
        return RunOutcome{.end = cancel ? RunEnd::kCancelled : RunEnd::kDrained, .result = {}};
      }
      PF_RETURN_IF_ERROR(trainer.status());
      return (*trainer)->Run();
    });
  }

  absl::Status CheckCompatible(const TrainOptions& options, const data::ImportedSummary& summary,
                               std::string_view prefix) const override {
    return Task::Check(options, summary, prefix);
  }

  DeviceKind device() const override { return device::KindOf(device_); }
  int threads() const override { return threads_; }
  std::string_view torch_version() const override { return TORCH_VERSION; }

 private:
  const c10::Device device_;
  const int threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Runner>> MakeTorchRunner(const RunnerOptions& options) {
  device::InstallStorageAllocator();
  PF_ASSIGN_OR_RETURN(const c10::Device device, device::OpenDevice(options.device));
  PF_RETURN_IF_ERROR(device::CheckCapture(device));
  return std::make_unique<TorchRunner>(device, device::UseThreads(options.threads));
}

StorageUse CurrentStorageUse() {
  const device::StorageCounters now = device::ReadStorageCounters();
  return {now.bytes, now.allocations};
}

}  // namespace permafrost::train
