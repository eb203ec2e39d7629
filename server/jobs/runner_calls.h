// Work of the runner that calls ask for, beside the jobs: plans of graph caches, evaluations of weights, and ranks of
// jobs that other servers lead.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/catalog/catalog.h"
#include "graphcache/cache_plan.h"
#include "graphcache/census.h"
#include "jobs/admission.h"
#include "jobs/device_thread.h"
#include "jobs/job_book.h"
#include "jobs/job_requests.h"
#include "train/runner.h"

namespace permafrost::jobs {

// Plans of graph caches for jobs that do not exist yet.
// Threads: safe anywhere; a call waits for its plan. Borrows everything.
class Planner {
 public:
  Planner(JobBook& book, const Admission& admission, DeviceThread& device, data::Catalog& catalog,
          train::Runner& runner)
      : book_(book), admission_(admission), device_(device), catalog_(catalog), runner_(runner) {}

  // As JobManager::PlanGraphCache.
  absl::StatusOr<graphcache::CachePlan> Plan(const spec::JobSpec& spec, bool measure,
                                             const std::function<bool()>& wanted);
  // As JobManager::TakeGraphCacheCensus.
  absl::StatusOr<graphcache::Census> TakeCensus(const spec::JobSpec& spec, graphcache::TorchRelease release,
                                                const std::function<bool()>& wanted);

 private:
  // Opens the dataset of a spec that could become a job, and sets `options` to the spec's, as the runner takes them.
  absl::StatusOr<data::OpenedDataset> Open(const spec::JobSpec& spec, spec::TrainOptions& options);
  // False once the book drains or the caller has gone. `on_device`: asked by the device thread, which gets on then.
  bool KeepGoing(bool on_device, const std::function<bool()>& wanted);
  // The error of work that KeepGoing stopped.
  absl::Status StoppedError() const;
  // Cancelled once KeepGoing says no.
  absl::StatusOr<graphcache::CachePlan> TryPlan(const spec::JobSpec& spec, bool measure,
                                                const std::function<bool()>& wanted);

  JobBook& book_;
  const Admission& admission_;
  DeviceThread& device_;
  data::Catalog& catalog_;
  train::Runner& runner_;
};

// Passes of a job's weights over rows of a dataset, its own or another, beside what the device does.
// Threads: safe anywhere; a call waits for its pass. Borrows everything.
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

// Runs ranks of jobs that other servers lead on this server's device.
// Threads: safe anywhere; a call waits for its rank. Borrows everything.
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
