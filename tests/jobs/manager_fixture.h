// A job manager over fakes, with a state directory of its own.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <prometheus/registry.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "jobs/fakes.h"
#include "jobs/job_manager.h"
#include "jobs/job_store.h"
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

// Waits until the job at `step` has commands with a sequence above `after`, and returns them.
inline std::vector<graphcache::Command> AwaitCommands(train::RunContext& run, int64_t step, int64_t after = 0) {
  for (const Stopwatch waited; waited.Elapsed() < absl::Seconds(60); absl::SleepFor(absl::Milliseconds(1))) {
    if (auto commands = run.TakeCacheCommands(after, step); !commands.empty()) return commands;
  }
  ADD_FAILURE() << "no command after " << after << " has come in a minute";
  return {graphcache::Command()};
}

// Holds what one daemon process has: a manager, and the objects that it borrows.
class Server {
 public:
  explicit Server(std::filesystem::path state_dir, absl::Duration first_retry = absl::Milliseconds(1),
                  bool preempt = true, KeepFinished keep_finished = {}, int64_t max_log_bytes = 0, int64_t max_jobs = 0)
      : Server(std::move(state_dir), JobManagerOptions{.first_retry = first_retry,
                                                       .preempt = preempt,
                                                       .keep_finished = keep_finished,
                                                       .max_log_bytes = max_log_bytes,
                                                       .max_jobs = max_jobs}) {}
  // `options` is what the test wants, except that the manager uses `state_dir` and looks for timed changes every 5
  // ms.
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
  // Ends as a clean shutdown does: the run stops at its next step boundary.
  ~Server() {
    manager_->Drain();
    runner_.Release();
  }

  JobManager* operator->() { return manager_.get(); }
  JobManager& manager() { return *manager_; }
  FakeCatalog& catalog() { return catalog_; }
  FakeRunner& runner() { return runner_; }
  std::filesystem::path JobDirectory(const std::string& id) const { return state_dir_ / "jobs" / id; }
  const std::filesystem::path& state_dir() const { return state_dir_; }
  // Opens another manager on `state_dir`, and returns whether a daemon would start there.
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
  // Creates a job, and returns its run at its first step. From then on the test drives it (FakeRunner::Drive).
  train::RunContext& Run(const std::string& id) { return Run(Request(id)); }
  train::RunContext& Run(const CreateRequest& request) {
    runner_.Drive();
    manager_->Start();
    auto job = manager_->Create(request);
    EXPECT_TRUE(job.ok()) << job.status();
    train::RunContext& run = runner_.AwaitDriven();
    run.OnProgress({.step = 1});
    AwaitState(request.id.value(), JobState::kRunning);
    return run;
  }
  // Ends the driven run with success.
  void Succeed() { runner_.End(train::RunOutcome{train::RunEnd::kSucceeded, train::RunResult()}); }
  // Puts an ended job into the database, as an earlier process would have left it.
  void Record(const Job& ended) {
    Job job = ended;  // a copy, because the store writes into it
    auto store = JobStore::Open(state_dir_ / "permafrost.db");
    EXPECT_TRUE(store.ok()) << store.status();
    EXPECT_EQ((*store)->Insert(job), absl::OkStatus());
    EXPECT_EQ((*store)->PutEpochs(job.id, {job.epochs.begin(), job.epochs.end()}), absl::OkStatus());
  }
  // Writes a file of a job.
  void WriteFile(const std::string& id, const std::string& name, const std::string& content) const {
    const std::filesystem::path path = JobDirectory(id) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << content;
  }
  // Waits until `count` subscriptions of changes and logs are alive. Returns false after a minute.
  bool AwaitWatchers(size_t count) const {
    for (const Stopwatch waited; waited.Elapsed() < absl::Seconds(60); absl::SleepFor(absl::Milliseconds(1))) {
      if (manager_->watchers() == count) return true;
    }
    return false;
  }
  Job Get(const std::string& id) {
    auto job = manager_->Get(JobId(id));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : Job();
  }
  // Waits for notices until `wanted` holds for the job.
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

// Counts the notices about a job.
// Threads: all methods are safe anywhere.
class Notices {
 public:
  Notices(Server& server, const std::string& id)
      : subscription_(server->Subscribe(JobId(id), [this] {
          absl::MutexLock lock(&mu_);
          ++count_;
        })) {}
  // Waits for one more notice than earlier calls waited for. Returns false after a minute.
  bool AwaitOneMore() {
    absl::MutexLock lock(&mu_);
    const auto more = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return count_ > seen_; };
    if (!mu_.AwaitWithTimeout(absl::Condition(&more), absl::Seconds(60))) return false;
    seen_ = count_;
    return true;
  }

 private:
  absl::Mutex mu_;
  int count_ ABSL_GUARDED_BY(mu_) = 0, seen_ ABSL_GUARDED_BY(mu_) = 0;
  const std::unique_ptr<ChangeHub::Subscription> subscription_;  // declared last, so that it is destroyed first
};

// Returns the places to which the directory `name` of state_dir/jobs was moved.
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
