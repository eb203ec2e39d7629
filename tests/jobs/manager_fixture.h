// A job manager over fakes, in a state directory of its own.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "jobs/fakes.h"
#include "jobs/job_manager.h"
#include "jobs/run_counters.h"
#include "metric_values.h"
#include "telemetry/graph_cache_metrics.h"
#include "telemetry/job_metrics.h"
#include "temp_dir.h"

namespace permafrost::jobs {

inline std::vector<std::string_view> StateNames() {
  std::vector<std::string_view> names;
  names.reserve(kJobStateNames.rows.size());
  for (const auto& [state, name] : kJobStateNames.rows) names.push_back(name);
  return names;
}

// One process's worth: a manager and what it borrows.
class Server {
 public:
  explicit Server(std::filesystem::path state_dir, absl::Duration first_retry = absl::Milliseconds(1),
                  bool preempt = true, KeepFinished keep_finished = {}, int64_t max_log_bytes = 0, int64_t max_jobs = 0)
      : Server(std::move(state_dir), JobManagerOptions{.first_retry = first_retry,
                                                       .preempt = preempt,
                                                       .keep_finished = keep_finished,
                                                       .max_log_bytes = max_log_bytes,
                                                       .max_jobs = max_jobs}) {}
  // With the folder, and looks at what time changes, that a test wants.
  Server(std::filesystem::path state_dir, JobManagerOptions options) : state_dir_(std::move(state_dir)) {
    std::filesystem::create_directories(state_dir_);
    catalog_.Put("zinc");
    options.state_dir = state_dir_;
    options.attend_every = absl::Milliseconds(5);
    auto opened = JobManager::Open(options, catalog_, runner_, metrics_, cache_metrics_);
    if (!opened.ok()) {
      ADD_FAILURE() << opened.status();
      std::abort();
    }
    manager_ = *std::move(opened);
  }
  // As a clean end does: the run stops at its next step boundary.
  ~Server() {
    manager_->Drain();
    runner_.Release();
  }

  JobManager* operator->() { return manager_.get(); }
  FakeCatalog& catalog() { return catalog_; }
  FakeRunner& runner() { return runner_; }
  std::filesystem::path JobDirectory(const std::string& id) const { return state_dir_ / "jobs" / id; }
  const std::filesystem::path& state_dir() const { return state_dir_; }
  // Opens another manager's worth of `state_dir`: whether it would start.
  static absl::Status TryOpen(const std::filesystem::path& state_dir, bool quarantine_unknown_jobs) {
    prometheus::Registry registry;
    telemetry::JobMetrics metrics(registry, StateNames());
    telemetry::GraphCacheMetrics cache_metrics(registry, CacheCounterRows(), {"train", "eval"}, {"new-nodes"});
    FakeCatalog catalog;
    FakeRunner runner;
    return JobManager::Open({.state_dir = state_dir, .quarantine_unknown_jobs = quarantine_unknown_jobs}, catalog,
                            runner, metrics, cache_metrics)
        .status();
  }

  static CreateRequest Request(const std::string& id, int64_t epochs = 2, int32_t priority = 0) {
    CreateRequest request;
    request.id = JobId(id);
    request.spec.train.dataset = DatasetId("zinc");
    request.spec.train.epochs = epochs;
    request.spec.priority = priority;
    return request;
  }
  Job Create(const std::string& id, int64_t epochs = 2, int32_t priority = 0) {
    auto job = manager_->Create(Request(id, epochs, priority));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : Job();
  }
  Job Get(const std::string& id) {
    auto job = manager_->Get(JobId(id));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : Job();
  }
  // Waits for notices until the job is as wanted.
  Job Await(const std::string& id, const std::function<bool(const Job&)>& wanted) {
    absl::Mutex mu;
    bool changed = true;
    const auto subscription = manager_->Subscribe(JobId(id), [&] {
      absl::MutexLock lock(&mu);
      changed = true;
    });
    while (true) {
      {
        absl::MutexLock lock(&mu);
        if (!mu.AwaitWithTimeout(absl::Condition(&changed), absl::Seconds(60))) {
          ADD_FAILURE() << "no notice about " << id << " in a minute";
          return Get(id);
        }
        changed = false;
      }
      Job job = Get(id);
      if (wanted(job)) return job;
    }
  }
  Job AwaitState(const std::string& id, JobState state) {
    return Await(id, [state](const Job& job) { return job.state == state; });
  }
  Job AwaitEnd(const std::string& id) {
    return Await(id, [](const Job& job) { return IsTerminal(job.state); });
  }
  std::string Log(const std::string& id) {
    auto chunk = manager_->ReadLog(JobId(id), 0, 1 << 20);
    EXPECT_TRUE(chunk.ok()) << chunk.status();
    return chunk.ok() ? chunk->data : "";
  }
  double Metric(const std::string& name, const MetricLabels& labels = {}) const {
    return MetricValue(registry_, name, labels).value_or(-1);
  }

 private:
  const std::filesystem::path state_dir_;
  prometheus::Registry registry_;
  telemetry::JobMetrics metrics_{registry_, StateNames()};
  telemetry::GraphCacheMetrics cache_metrics_{registry_, CacheCounterRows(), {"train", "eval"}, {"new-nodes"}};
  FakeCatalog catalog_;
  FakeRunner runner_;
  std::unique_ptr<JobManager> manager_;
};

// Returns where the directory `name` of state_dir/jobs was moved to.
inline std::vector<std::filesystem::path> QuarantinedIn(const std::filesystem::path& jobs, const std::string& name) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(jobs)) {
    if (entry.path().filename().string().starts_with(".quarantine-" + name + "-")) found.push_back(entry.path());
  }
  return found;
}

inline std::vector<std::string> FieldsOf(const absl::Status& status) {
  std::vector<std::string> fields;
  for (const FieldViolation& violation : GetViolations(status)) fields.push_back(violation.field);
  return fields;
}

inline std::string ReasonOf(const absl::Status& status) { return GetReason(status).reason; }

}  // namespace permafrost::jobs
