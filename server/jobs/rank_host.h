// Runs ranks of jobs that other servers lead on this server's device.
// Threads: safe anywhere; a call waits for its rank. Borrows everything.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "data/catalog/catalog.h"
#include "jobs/device_thread.h"
#include "jobs/job_book.h"
#include "jobs/job_requests.h"
#include "train/runner.h"

namespace permafrost::jobs {

class RankHost {
 public:
  RankHost(JobBook& book, DeviceThread& device, data::Catalog& catalog, train::Runner& runner)
      : book_(book), device_(device), catalog_(catalog), runner_(runner) {}

  // As JobManager::RunRank.
  absl::Status Run(const RankRequest& request, const OnRankProgress& on_progress);

 private:
  // Returns the dataset that the rank trains on. Errors: those of a rank that this server cannot take even when idle.
  absl::StatusOr<data::OpenedDataset> Check(const RankRequest& request) const;

  JobBook& book_;
  DeviceThread& device_;
  data::Catalog& catalog_;
  train::Runner& runner_;
};

}  // namespace permafrost::jobs
