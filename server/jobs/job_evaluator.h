// Passes of a job's weights over rows of a dataset, its own or another, beside what the device does.
// Threads: safe anywhere; a call waits for its pass. Borrows everything.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "absl/status/statusor.h"
#include "data/catalog/catalog.h"
#include "jobs/device_thread.h"
#include "jobs/job_book.h"
#include "jobs/job_requests.h"
#include "train/runner.h"

namespace permafrost::jobs {

class JobEvaluator {
 public:
  JobEvaluator(JobBook& book, DeviceThread& device, data::Catalog& catalog, train::Runner& runner)
      : book_(book), device_(device), catalog_(catalog), runner_(runner) {}

  // As JobManager::Evaluate.
  absl::StatusOr<JobEvaluation> Evaluate(const EvaluationRequest& request,
                                         const std::function<bool(int64_t done, int64_t total)>& on_progress);

 private:
  absl::StatusOr<std::filesystem::path> FindWeights(const EvaluationRequest& request) const;

  JobBook& book_;
  DeviceThread& device_;
  data::Catalog& catalog_;
  train::Runner& runner_;
};

}  // namespace permafrost::jobs
