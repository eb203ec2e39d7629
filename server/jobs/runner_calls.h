// Work of the runner, besides jobs, that RPCs request: plans of graph caches, evaluations of weights, and ranks of
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

// Plans the graph caches of jobs that do not exist yet.
// Threads: safe anywhere; a call waits for its plan. Borrows everything.
class Planner {
 public:
  Planner(JobBook& book, const Admission& admission, DeviceThread& device, data::Catalog& catalog,
          train::Runner& runner)
      : book_(book), admission_(admission), device_(device), catalog_(catalog), runner_(runner) {}

  // See JobManager::PlanGraphCache.
  absl::StatusOr<graphcache::CachePlan> Plan(const spec::JobSpec& spec, bool measure,
                                             const std::function<bool()>& wanted);
  // See JobManager::TakeGraphCacheCensus.
  absl::StatusOr<graphcache::Census> TakeCensus(const spec::JobSpec& spec, graphcache::TorchRelease release,
                                                const std::function<bool()>& wanted);

 private:
  // Checks that a job could be made of a spec, and then opens the dataset of the spec. Sets `options` to the spec's
  // options in the form that the runner takes.
  absl::StatusOr<data::OpenedDataset> Open(const spec::JobSpec& spec, spec::TrainOptions& options);
  // Returns false once the book drains or the caller has gone. If `on_device`, the device thread makes the call, and
  // the call counts as a sign of its progress.
  bool KeepGoing(bool on_device, const std::function<bool()>& wanted);
  // Returns the error for work that KeepGoing stopped.
  absl::Status StoppedError() const;
  // Makes a plan. Errors: Cancelled as soon as KeepGoing returns false.
  absl::StatusOr<graphcache::CachePlan> TryPlan(const spec::JobSpec& spec, bool measure,
                                                const std::function<bool()>& wanted);

  JobBook& book_;
  const Admission& admission_;
  DeviceThread& device_;
  data::Catalog& catalog_;
  train::Runner& runner_;
};

// Evaluates a job's weights on rows of the job's dataset or of another dataset. On the CPU, a pass runs beside the work
// of the device thread. Any other device must be idle.
// Threads: safe anywhere; a call waits for its pass. Borrows everything.
class JobEvaluator {
 public:
  JobEvaluator(JobBook& book, DeviceThread& device, data::Catalog& catalog, train::Runner& runner)
      : book_(book), device_(device), catalog_(catalog), runner_(runner) {}

  // See JobManager::Evaluate.
  absl::StatusOr<JobEvaluation> Evaluate(const EvaluationRequest& request,
                                         const std::function<bool(int64_t done, int64_t total)>& on_progress);

 private:
  absl::StatusOr<std::filesystem::path> FindWeights(const EvaluationRequest& request) const;

  JobBook& book_;
  DeviceThread& device_;
  data::Catalog& catalog_;
  train::Runner& runner_;
};

// Runs, on this server's device, ranks of jobs that other servers lead.
// Threads: safe anywhere; a call waits for its rank. Borrows everything.
class RankHost {
 public:
  RankHost(JobBook& book, DeviceThread& device, data::Catalog& catalog, train::Runner& runner)
      : book_(book), device_(device), catalog_(catalog), runner_(runner) {}

  // See JobManager::RunRank.
  absl::Status Run(const RankRequest& request, const OnRankProgress& on_progress);

 private:
  // Returns the dataset on which the rank trains. Errors: the reasons for which even an idle server could not take
  // the rank.
  absl::StatusOr<data::OpenedDataset> Check(const RankRequest& request) const;

  JobBook& book_;
  DeviceThread& device_;
  data::Catalog& catalog_;
  train::Runner& runner_;
};

}  // namespace permafrost::jobs
