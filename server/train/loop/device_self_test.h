// Tests a device: runs jobs with one model under several cache policies, compares each of their steps with the CPU's,
// and watches how memory and cache entries grow.
// Threads: the device's one thread.
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
  int threads = 0;  // same as RunnerOptions::threads
  double mps_driver_threshold = kDefaultMpsDriverThreshold;
  // Steps of the sealed job, at least 20. Each other job has a tenth of these steps, but at least 50.
  int64_t steps = 1'000;
};

// The result of one job of the test. An "entry" is a compiled graph if the device keeps compiled graphs, and
// otherwise an executable of the cache.
struct SelfTestArm {
  std::string policy;
  int64_t steps = 0;
  double milliseconds = 0;        // mean time of a step, without captures ahead
  std::optional<int64_t> sealed;  // entries after the first step
  std::optional<int64_t> end;     // entries after the last step
  int64_t emptied = 0;            // the number of times that the device's caches were emptied
  // Growth of memory from the first step to the last: the driver's memory if the driver reports it, otherwise the
  // process's.
  double growth_mb = 0;
  std::optional<int64_t> driver_bytes;
  int64_t compared = 0;       // steps that were also run on the CPU
  double difference = 0;      // largest difference of a loss or running statistic in any step
  std::string differs;        // name of the value with this difference, and the step
  double gradients = 0;       // largest difference of gradients in a step: median over steps
  double gradients_most = 0;  // largest difference of gradients in a step: maximum over steps
};

struct SelfTestReport {
  std::string device;
  std::string entries_are;  // "compiled graphs that mps keeps" or "executables"
  std::vector<SelfTestArm> arms;
  std::vector<std::string> failures;  // one line each; empty if the test passed
};

// The largest differences from the CPU with which a device passes, as fractions of the largest compared value. Losses
// and running statistics must stay within kSelfTestTolerance in every step. Gradients jump if the input of a ReLU, or
// an error of the L1 loss, is next to 0. This happens to about one input in a hundred thousand, so it happens in many
// steps. So the median difference of gradients over the steps must stay within kSelfTestTolerance, and the largest
// within kSelfTestJump. A wrong kernel differs in every step.
inline constexpr double kSelfTestTolerance = 1e-4, kSelfTestJump = 5e-2;

// Trains GINE on a set of small graphs in several jobs. The first job is sealed. Another job runs under `always`, and
// its entries must grow. A further job under `always` has its cache cleared every few steps. Each policy that keeps
// nothing also has a job. For each compared step, the device and the CPU start from equal state on the same batch.
// The comparison covers the loss, running statistics, and the optimizer's moments, which contain the gradients. It
// leaves out the weights, because Adam moves a weight by a full step even if its gradient is only rounding noise.
// Calls `progress` with a line before each job.
// Errors: those of OpenBackend and of the jobs.
absl::StatusOr<SelfTestReport> RunSelfTest(const SelfTestOptions& options, const data::OpenedDataset& dataset,
                                           const std::function<void(std::string_view line)>& progress);

// Returns a table with one row for each arm, and a line for each failure.
std::string Show(const SelfTestReport& report);

}  // namespace permafrost::train
