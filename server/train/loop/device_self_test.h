// Tests that a device keeps Permafrost's promise: runs jobs of one model under several cache policies, and holds each
// of their steps to the CPU's. Threads: the device's one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/device.h"
#include "data/store/dataset.h"

namespace permafrost::train {

struct SelfTestOptions {
  DeviceChoice device;
  int threads = 0;  // as RunnerOptions
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
  // Steps of the sealed job, >= 20; the others have a tenth of it, at least 50.
  int64_t steps = 1'000;
};

// A job under one policy. Entries are the device's compiled graphs, where it keeps such, else the cache's executables.
struct SelfTestArm {
  std::string policy;
  int64_t steps = 0;
  double milliseconds = 0;        // a step, without captures ahead of it
  std::optional<int64_t> sealed;  // entries after the first step
  std::optional<int64_t> end;     // entries after the last one
  int64_t emptied = 0;            // how often the device's caches were emptied
  double growth_mb = 0;           // from the first step to the last: of the driver, or of the process
  std::optional<int64_t> driver_bytes;
  int64_t compared = 0;       // steps that the CPU did as well
  double difference = 0;      // of losses and running statistics: the largest of any step
  std::string differs;        // what it was
  double gradients = 0;       // of gradients: the median over the steps
  double gradients_most = 0;  // and the largest
};

struct SelfTestReport {
  std::string device;
  std::string entries_are;  // "compiled graphs of mps", "executables"
  std::vector<SelfTestArm> arms;
  std::vector<std::string> failures;  // one line each; empty: passed
};

// From this on a step differs from the CPU's, as a part of the largest value of what is compared. Gradients jump where
// a ReLU's input, or an error of the L1 loss, is next to 0, and of a hundred thousand such inputs one is in many a
// step: half the steps have to keep to it, and all to the second. A kernel that is wrong is so in every step.
inline constexpr double kSelfTestTolerance = 1e-4, kSelfTestJump = 5e-2;

// Trains GINE on a set of small graphs: sealed; `always`, which must grow; `always`, cleared every few steps; and the
// policies that keep nothing. A step is compared from equal state on the same batch: its loss, running statistics, and
// the optimizer's moments, which hold the gradients. Not the weights: Adam makes a whole step of the sign of a gradient
// that is noise. `progress` is told a line before each job. Errors: those of OpenBackend, and of jobs.
absl::StatusOr<SelfTestReport> RunSelfTest(const SelfTestOptions& options, const data::OpenedDataset& dataset,
                                           const std::function<void(std::string_view line)>& progress);

// A table of the arms, one row each, and a line for each failure.
std::string Show(const SelfTestReport& report);

}  // namespace permafrost::train
