// The one JobManager. Create and Delete are in admission.cc, the device thread's half in device_thread.cc, graph caches
// in cache_commands.cc, the rest in job_manager.cc.
//
// Locks, in the order in which they are taken: admission_mu_, then the catalog's (inside its methods), then mu_, then
// the store's. mu_ is held across store writes, so that memory and store change together; what a training step touches
// (LiveRun) has a lock of its own.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "jobs/job_files.h"
#include "jobs/job_manager.h"
#include "jobs/run_context.h"
#include "telemetry/log.h"

namespace permafrost::jobs {

class JobManagerImpl final : public JobManager {
 public:
  // `jobs_directory`: state_dir/jobs.
  JobManagerImpl(std::filesystem::path jobs_directory, std::unique_ptr<JobStore> store, data::Catalog& catalog,
                 train::Runner& runner, const RunMetrics& metrics);
  ~JobManagerImpl() override;

  // Takes up what the store holds; called once, before any other method.
  absl::Status Recover();

  void Start() override;
  absl::StatusOr<Job> Create(const CreateRequest& request) override;
  absl::StatusOr<Job> Get(const JobId& id) const override;
  absl::StatusOr<JobPage> List(int64_t page_size, const std::string& page_token,
                               const std::vector<JobState>& states) const override;
  absl::StatusOr<Job> Cancel(const JobId& id) override;
  absl::Status Delete(const JobId& id) override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const JobId& id, ChangeHub::Listener listener) override;
  absl::StatusOr<LogChunk> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const override;
  absl::StatusOr<std::filesystem::path> ArtifactPath(const JobId& id, Artifact artifact) const override;
  absl::Status CheckDatasetUnused(const DatasetId& id) const override;
  absl::StatusOr<graphcache::Snapshot> GetGraphCache(const JobId& id) const override;
  absl::StatusOr<std::vector<graphcache::EntryInfo>> GraphCacheEntries(const JobId& id) const override;
  void CommandGraphCache(const JobId& id, const graphcache::Command& command, CommandDone done) override;
  std::array<int64_t, 6> CountByState() const override;
  JobId Drain() override;
  bool draining() const override { return draining_.load(std::memory_order_acquire); }
  void Join() override;

 private:
  // A job that has not ended.
  struct Active {
    Job job;  // as stored, with its epochs
    absl::Time queued_since;
    std::shared_ptr<LiveRun> live;                   // while it is on the device
    std::deque<train::EpochMetrics> unsaved_epochs;  // told, and not yet in the store
    LiveRun::Entries stored_entries;                 // of the graph cache: those that the run stored last
  };
  // A job on the device thread.
  struct Run {
    Job job;  // as it started, without epochs
    std::shared_ptr<LiveRun> live;
    std::unique_ptr<telemetry::JobLog> log;  // null if it could not be opened
  };

  absl::Status RecoverJob(const JobId& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // admission.cc
  // The job made earlier with the request's request_id, if any.
  absl::StatusOr<std::optional<Job>> FindRepeated(const CreateRequest& request) const;
  absl::StatusOr<JobId> ChooseId(const JobId& wanted) const;
  absl::Status CheckDataset(const JobSpec& spec) const;
  absl::StatusOr<Job> Admit(Job job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(admission_mu_);

  // cache_commands.cc
  // The running job's cache; nullopt for any other.
  std::optional<LiveRun::Cache> LiveCache(const JobId& id) const;
  // What a run of the job begins with.
  absl::StatusOr<std::shared_ptr<LiveRun>> MakeLiveRun(const Job& job) const;
  // Records a command of a job that has not ended. The answer, if it is known already; nullopt: `done` was kept.
  std::optional<absl::StatusOr<graphcache::Snapshot>> Record(Active& active, graphcache::Command command,
                                                             const CommandDone& done)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<graphcache::Snapshot> RecordQueued(const Job& job, const graphcache::Command& command,
                                                    std::vector<graphcache::Command> commands)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Stores the live run's graph cache.
  absl::Status SaveGraphCache(Active& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // job_manager.cc
  // The job as it is this moment.
  static Job Snapshot(const Active& active);
  // Stores `next`, then makes it what everyone sees; a job that ended leaves active_. Nothing changes on an error.
  absl::Status Commit(Active& active, Job next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountJob(JobState state, int64_t change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AppendLog(const JobId& id, telemetry::Severity severity, const std::string& line) const;

  // device_thread.cc
  void DeviceLoop();
  // Waits for a job and moves the best one to running; nullopt once draining.
  std::optional<Run> TakeNext();
  absl::StatusOr<train::RunOutcome> Execute(Run& run);
  void Finish(Run& run, const absl::StatusOr<train::RunOutcome>& outcome);
  // Stores and tells where the job goes; whether it ended.
  bool MoveOn(Run& run, const absl::StatusOr<train::RunOutcome>& outcome);
  void StoreProgress(const JobId& id);
  void RecordEpoch(const JobId& id, const train::EpochMetrics& metrics);
  // Those that an error kept from the store stay for the next call.
  absl::Status SaveEpochs(Active& active) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Waits a moment before a store write is tried again; false once draining.
  bool WaitToRetry() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const JobFiles files_;
  const std::unique_ptr<JobStore> store_;
  data::Catalog& catalog_;
  train::Runner& runner_;
  const RunMetrics metrics_;

  // Serializes Create and Delete, which change job directories. Held across calls into the catalog.
  absl::Mutex admission_mu_ ABSL_ACQUIRED_BEFORE(mu_);
  mutable absl::Mutex mu_;
  std::map<JobId, Active> active_ ABSL_GUARDED_BY(mu_);
  // The job that Create checks just now: its dataset must not go meanwhile.
  std::optional<Job> creating_ ABSL_GUARDED_BY(mu_);
  std::array<int64_t, 6> counts_ ABSL_GUARDED_BY(mu_) = {};  // by JobState
  JobId running_ ABSL_GUARDED_BY(mu_);
  bool device_busy_ ABSL_GUARDED_BY(mu_) = false;  // the device thread exists and has not ended
  std::thread device_thread_ ABSL_GUARDED_BY(mu_);
  // Written under mu_; read without it at each training step.
  std::atomic<bool> draining_{false};
  ChangeHub hub_;  // last: no listener runs once anything above is gone
};

}  // namespace permafrost::jobs
