// The Runner that uses libtorch.
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
  // The number of threads of the math library. 0 means the number of cores that this process may use.
  int threads = 0;
  // The folder in which plans of jobs are kept (train/planning/job_schedule.h). If empty, none are kept.
  std::filesystem::path plans;
  // Takes warnings, for example about kept plans, one line each.
  std::function<void(std::string_view)> warn = [](std::string_view) {};
  // Threshold of MPS driver memory, as a fraction (0..2) of the recommended maximum. Above it, the caches of MPS are
  // emptied between steps. 0 means never.
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
  // The options of the caches through which features of large graphs are read.
  data::RowCaches::Options features;
  // The space to keep free on the disk of jobs. While less is free, a due checkpoint waits.
  DiskReserve reserve;
  // The daemons with which jobs with several replicas are trained. They outlive the runner. Null if there are none.
  Peers* peers = nullptr;
  // The time that a step waits for another rank.
  absl::Duration peer_timeout = absl::Seconds(30);
  // The interval at which a job that trains on fewer daemons than it wants asks whether another daemon is free.
  absl::Duration look_interval = absl::Seconds(5);
};

// Makes the runner.
// Errors: FailedPrecondition if the device is absent, if this libtorch was not tested, or if it is not the one that
// the daemon was built with. Internal if steps cannot be captured with this libtorch.
absl::StatusOr<std::unique_ptr<Runner>> MakeTorchRunner(const RunnerOptions& options);

// Checks that a device can compute with the model's precision. Refuses bfloat16 on a device other than a CPU, on a
// CPU without an instruction for it (`can_round` is false), and with shape-free operators. `prefix` stands before the
// field's name, for example "spec.".
// Threads: any.
absl::Status CheckPrecision(const spec::ModelOptions& model, DeviceKind device, bool can_round,
                            std::string_view prefix);

}  // namespace permafrost::train
