// The Runner on libtorch.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device.h"
#include "base/resources.h"
#include "data/rows/row_caches.h"
#include "spec/model.h"
#include "train/runner.h"

namespace permafrost::train {

struct RunnerOptions {
  DeviceChoice device;
  // Threads of the math library; 0: the cores this process may use.
  int threads = 0;
  // The folder in which the shape plans of jobs are kept (train/planning/job_schedule.h); empty: they are not.
  std::filesystem::path plans;
  // Hears what becomes of them that is not as it should be, a line each.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
  // Driver memory of MPS, as a part of the recommended maximum, from which on its caches are emptied between steps,
  // 0..2; 0: never.
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
  // Options for how features of large graphs are read.
  data::RowCaches::Options features;
  // Kept free on the disk of jobs: checkpoints that are due wait while less is.
  DiskReserve reserve;
  // The daemons that jobs with several replicas are trained with; nullptr: there are none. Outlives the runner.
  Peers* peers = nullptr;
  // How long a step waits for one of them.
  absl::Duration peer_timeout = absl::Seconds(30);
  // Time between two questions whether another daemon is free, of a job that trains with fewer than it wants.
  absl::Duration look_interval = absl::Seconds(5);
};

// Errors: FailedPrecondition for a device that is absent, or a libtorch that was not tested or is not the one that this
// was built with; Internal for one that steps cannot be captured with.
absl::StatusOr<std::unique_ptr<Runner>> MakeTorchRunner(const RunnerOptions& options);

// Checks that a model's precision is to be had on a device: refuses bfloat16 on a device that is no CPU, on a CPU that
// `can_round` says has no instruction for it, and with operators that are free of shapes. prefix: of the field, as
// "spec.". Threads: any.
absl::Status CheckPrecision(const spec::ModelOptions& model, DeviceKind device, bool can_round,
                            std::string_view prefix);

}  // namespace permafrost::train
