// A JobManager in memory, which a test drives by hand, and what goes with it.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "counted_hub.h"
#include "fake_catalog.h"
#include "jobs/job_manager.h"
#include "jobs/job_store.h"
#include "jobs/request_log.h"

namespace permafrost::api {

// The create_time of every job here.
inline const absl::Time kCreateTime = absl::FromUnixSeconds(1'700'000'000);

class FakeJobManager : public jobs::JobManager {
 public:
  std::optional<jobs::DatasetTraits> TraitsOf(const DatasetId& /*id*/) const override {
    absl::MutexLock lock(&mu_);
    return traits_;
  }
  // Sets the traits of every dataset; nullopt, as at first: none is known.
  void SetTraits(std::optional<jobs::DatasetTraits> traits) {
    absl::MutexLock lock(&mu_);
    traits_ = std::move(traits);
  }
  // Changes a job as a test wants it.
  void Put(jobs::Job job) {
    const std::string key = job.id.value();
    {
      absl::MutexLock lock(&mu_);
      jobs_[key] = std::move(job);
    }
    hub_.Notify(key);
  }
  template <class F>
  void Change(const std::string& id, F change) {
    {
      absl::MutexLock lock(&mu_);
      change(jobs_.at(id));
    }
    hub_.Notify(id);
  }
  void AppendLog(const std::string& id, const std::string& text) {
    {
      absl::MutexLock lock(&mu_);
      logs_[id] += text;
    }
    hub_.Notify(id);
  }
  void SetArtifact(std::filesystem::path path) {
    absl::MutexLock lock(&mu_);
    artifact_ = std::move(path);
  }
  void FailNext(absl::Status status) {
    absl::MutexLock lock(&mu_);
    next_error_ = std::move(status);
  }
  jobs::CreateRequest created() const {
    absl::MutexLock lock(&mu_);
    return created_;
  }
  // Before the server starts: so many bytes of a log are a segment.
  void SetLogSegments(int64_t bytes) { log_segment_bytes_ = bytes; }
  // The requests of GetSince, in order.
  std::vector<int64_t> asked_since() const {
    absl::MutexLock lock(&mu_);
    return asked_since_;
  }
  std::vector<jobs::JobState> listed_states() const {
    absl::MutexLock lock(&mu_);
    return listed_states_;
  }
  std::string listed_filter() const {
    absl::MutexLock lock(&mu_);
    return listed_filter_;
  }
  int64_t listed_page_size() const {
    absl::MutexLock lock(&mu_);
    return listed_page_size_;
  }
  void SetPlan(graphcache::CachePlan plan) {
    absl::MutexLock lock(&mu_);
    plan_ = std::move(plan);
  }
  spec::JobSpec planned() const {
    absl::MutexLock lock(&mu_);
    return planned_;
  }
  bool plan_was_measured() const {
    absl::MutexLock lock(&mu_);
    return plan_was_measured_;
  }
  // Sets what Evaluate answers; it reports half of its rows first.
  void SetEvaluation(absl::StatusOr<jobs::JobEvaluation> evaluation) {
    absl::MutexLock lock(&mu_);
    evaluation_ = std::move(evaluation);
  }
  jobs::EvaluationRequest evaluated() const {
    absl::MutexLock lock(&mu_);
    return evaluated_;
  }
  absl::StatusOr<jobs::JobEvaluation> Evaluate(const jobs::EvaluationRequest& request,
                                               const std::function<bool(int64_t, int64_t)>& on_progress) override {
    absl::StatusOr<jobs::JobEvaluation> evaluation = jobs::JobEvaluation();
    {
      absl::MutexLock lock(&mu_);
      evaluated_ = request;
      evaluation = evaluation_;
    }
    if (!evaluation.ok()) return evaluation;
    if (!on_progress(evaluation->result.rows / 2, evaluation->result.rows)) return absl::CancelledError("stopped");
    return evaluation;
  }
  absl::StatusOr<graphcache::CachePlan> PlanGraphCache(const spec::JobSpec& spec, bool measure,
                                                       const std::function<bool()>& wanted) override {
    PF_RETURN_IF_ERROR(HoldWhileWanted(wanted));
    absl::MutexLock lock(&mu_);
    planned_ = spec;
    plan_was_measured_ = measure;
    return plan_;
  }
  // Every plan and census takes as long as it is wanted.
  void HoldPlans(bool hold) { hold_plans_ = hold; }
  // Until so many plans and censuses have been held; false where they never come.
  bool AwaitHeldPlans(int count) {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return plans_held_ >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }
  void SetCensus(graphcache::Census census) {
    absl::MutexLock lock(&mu_);
    census_ = std::move(census);
  }
  absl::StatusOr<graphcache::Census> TakeGraphCacheCensus(const spec::JobSpec& spec, graphcache::TorchRelease release,
                                                          const std::function<bool()>& wanted) override {
    PF_RETURN_IF_ERROR(HoldWhileWanted(wanted));
    absl::MutexLock lock(&mu_);
    planned_ = spec;
    graphcache::Census census = census_;
    census.release = release;
    return census;
  }
  void SetGraphCache(const std::string& id, graphcache::Snapshot snapshot,
                     std::vector<graphcache::EntryInfo> entries = {}) {
    {
      absl::MutexLock lock(&mu_);
      caches_[id] = {std::move(snapshot), std::move(entries)};
    }
    hub_.Notify(id);
  }
  // From now on commands wait until the test answers them, as those of a running job wait for its next step boundary.
  void HoldCommands() {
    absl::MutexLock lock(&mu_);
    hold_commands_ = true;
  }
  // The outcomes that are held, once there are that many; fewer where they never come.
  std::vector<CommandDone> TakeHeldCommands(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return held_.size() >= count; };
    mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
    return std::exchange(held_, {});
  }
  // In the order in which they came.
  std::vector<graphcache::Command> commands() const {
    absl::MutexLock lock(&mu_);
    return commands_;
  }
  CountedHub& hub() { return hub_; }

  void Start() override {}
  absl::StatusOr<jobs::Job> Create(const jobs::CreateRequest& request) override {
    absl::MutexLock lock(&mu_);
    PF_RETURN_IF_ERROR(std::exchange(next_error_, absl::OkStatus()));
    PF_RETURN_IF_ERROR(jobs::CheckRequest(request));
    created_ = request;
    created_of_ = traits_ ? traits_->uid : "";
    jobs::Job job;
    job.create_time = kCreateTime;
    job.id = request.id.empty() ? JobId("made") : request.id;
    job.spec = request.spec;
    return job;
  }
  absl::StatusOr<std::optional<jobs::CreatedBefore>> FindCreated(const std::string& request_id,
                                                                 const std::string& asked) const override {
    absl::MutexLock lock(&mu_);
    if (request_id.empty() || request_id != created_.request_id) return std::nullopt;
    jobs::Job job;
    job.create_time = kCreateTime;
    job.id = created_.id;
    job.spec = created_.spec;
    job.dataset_uid = created_of_;
    return jobs::CreatedBefore{.job = std::move(job), .same = asked == created_.asked};
  }
  absl::StatusOr<jobs::Job> Get(const JobId& id) const override {
    absl::MutexLock lock(&mu_);
    const auto it = jobs_.find(id.value());
    if (it == jobs_.end()) return NotFound(id);
    return it->second;
  }
  absl::StatusOr<jobs::Job> GetSince(const JobId& id, int64_t after_epoch) const override {
    PF_ASSIGN_OR_RETURN(jobs::Job job, Get(id));
    {
      absl::MutexLock lock(&mu_);
      asked_since_.push_back(after_epoch);
    }
    // As for a job on the device: more at each look.
    if (jobs::IsOnDevice(job.state)) job.device_time = ++looks_ * absl::Milliseconds(1);
    std::erase_if(job.epochs, [after_epoch](const train::EpochMetrics& e) { return e.epoch <= after_epoch; });
    if (job.epochs.size() > jobs::kMostEpochs) job.epochs.resize(jobs::kMostEpochs);
    return job;
  }
  absl::StatusOr<jobs::JobPage> List(int64_t page_size, const std::string& page_token,
                                     const jobs::JobQuery& query) const override {
    absl::MutexLock lock(&mu_);
    listed_page_size_ = page_size;
    listed_states_ = query.states;
    listed_filter_ = query.filter;
    jobs::JobPage page;
    for (const auto& [id, job] : jobs_) page.jobs.push_back(job);
    page.next_page_token = page_token + "+";
    return page;
  }
  absl::StatusOr<jobs::Job> Cancel(const JobId& id, const std::string& /*request_id*/) override {
    return Did("cancel", id);
  }
  absl::StatusOr<jobs::Job> Pause(const JobId& id, const std::string& /*request_id*/) override {
    return Did("pause", id);
  }
  absl::StatusOr<jobs::Job> Resume(const JobId& id, const std::string& /*request_id*/) override {
    return Did("resume", id);
  }
  absl::StatusOr<jobs::Job> Retry(const JobId& id, const std::string& /*request_id*/) override {
    return Did("retry", id);
  }
  absl::StatusOr<jobs::Job> Update(const JobId& id, const jobs::JobUpdate& update,
                                   const std::string& /*request_id*/) override {
    {
      absl::MutexLock lock(&mu_);
      update_ = update;
    }
    return Did("update", id);
  }
  jobs::JobUpdate update() const {
    absl::MutexLock lock(&mu_);
    return update_;
  }
  // Called by each verb, on the thread of its call.
  void SetVerbWait(std::function<void(const std::string& verb)> wait) {
    absl::MutexLock lock(&mu_);
    verb_wait_ = std::move(wait);
  }
  // "VERB ID" of each call, in order.
  std::vector<std::string> verbs() const {
    absl::MutexLock lock(&mu_);
    return verbs_;
  }
  void SetCheckpoints(std::vector<train::CheckpointInfo> checkpoints) {
    absl::MutexLock lock(&mu_);
    checkpoints_ = std::move(checkpoints);
  }
  absl::StatusOr<std::vector<train::CheckpointInfo>> Checkpoints(const JobId& id, bool verify) const override {
    absl::MutexLock lock(&mu_);
    if (!jobs_.contains(id.value())) return NotFound(id);
    verbs_.push_back(absl::StrCat(verify ? "verify " : "list ", id.value()));
    return checkpoints_;
  }
  using jobs::JobManager::Delete;
  absl::Status Delete(const JobId& id, const std::string& /*request_id*/) override {
    {
      absl::MutexLock lock(&mu_);
      if (jobs_.erase(id.value()) == 0) return NotFound(id);
    }
    hub_.Notify(id.value());
    return absl::OkStatus();
  }
  std::unique_ptr<ChangeHub::Subscription> SubscribeLog(const JobId& id, ChangeHub::Listener listener) override {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const JobId& id, ChangeHub::Listener listener) override {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  absl::StatusOr<jobs::LogChunk> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const override {
    absl::MutexLock lock(&mu_);
    const auto it = jobs_.find(id.value());
    if (it == jobs_.end()) return NotFound(id);
    const auto log = logs_.find(id.value());
    const std::string text = log == logs_.end() ? "" : log->second;
    const int64_t size = static_cast<int64_t>(text.size());
    if (offset < 0) offset = std::max<int64_t>(0, size + offset);
    if (offset > size) return absl::OutOfRangeError(absl::StrCat("offset ", offset, " is beyond ", size));
    jobs::LogChunk chunk;
    // A read ends with its segment, though the log goes on.
    chunk.data = text.substr(offset, std::min(max_bytes, log_segment_bytes_ - offset % log_segment_bytes_));
    chunk.next_offset = offset + static_cast<int64_t>(chunk.data.size());
    chunk.at_end = chunk.next_offset == size;
    chunk.complete = jobs::IsTerminal(it->second.state) && chunk.next_offset == size;
    return chunk;
  }
  absl::StatusOr<std::filesystem::path> ArtifactPath(const JobId& id, jobs::Artifact) const override {
    absl::MutexLock lock(&mu_);
    if (artifact_.empty()) {
      return WithReason(absl::FailedPreconditionError("job has not produced it"), "ARTIFACT_NOT_READY",
                        {{"job", id.value()}});
    }
    return artifact_;
  }
  absl::Status CheckDatasetUnused(const DatasetId& id) const override {
    absl::MutexLock lock(&mu_);
    for (const auto& [key, job] : jobs_) {
      if (job.spec.train.dataset == id) {
        return WithReason(absl::FailedPreconditionError("in use by job " + key), "DATASET_IN_USE", {{"job", key}});
      }
    }
    return absl::OkStatus();
  }
  absl::StatusOr<graphcache::Snapshot> GetGraphCache(const JobId& id) const override {
    absl::MutexLock lock(&mu_);
    if (!jobs_.contains(id.value())) return NotFound(id);
    const auto it = caches_.find(id.value());
    return it == caches_.end() ? graphcache::Snapshot() : it->second.snapshot;
  }
  absl::StatusOr<std::vector<graphcache::EntryInfo>> GraphCacheEntries(const JobId& id) const override {
    absl::MutexLock lock(&mu_);
    if (!jobs_.contains(id.value())) return NotFound(id);
    const auto it = caches_.find(id.value());
    return it == caches_.end() ? std::vector<graphcache::EntryInfo>() : it->second.entries;
  }
  jobs::JobStore& store() { return *store_; }
  jobs::RequestLog& requests() override { return requests_; }
  void CommandGraphCache(const JobId& id, const graphcache::Command& command, const std::string& /*request_id*/,
                         CommandDone done) override {
    absl::StatusOr<graphcache::Snapshot> outcome = GetGraphCache(id);
    {
      absl::MutexLock lock(&mu_);
      commands_.push_back(command);
      if (hold_commands_) return held_.push_back(std::move(done));
      if (absl::Status error = std::exchange(next_error_, absl::OkStatus()); !error.ok()) outcome = std::move(error);
    }
    done(std::move(outcome));
  }
  jobs::JobCounts CountByState() const override {
    absl::MutexLock lock(&mu_);
    jobs::JobCounts counts{};
    for (const auto& [id, job] : jobs_) ++counts[static_cast<size_t>(job.state)];
    return counts;
  }
  JobId Drain() override {
    absl::MutexLock lock(&mu_);
    draining_ = true;
    for (const auto& [id, job] : jobs_)
      if (job.state == jobs::JobState::kRunning) return job.id;
    return JobId();
  }
  bool draining() const override {
    absl::MutexLock lock(&mu_);
    return draining_;
  }
  void Join() override {}

 private:
  absl::Status HoldWhileWanted(const std::function<bool()>& wanted) {
    if (hold_plans_) {
      absl::MutexLock lock(&mu_);
      ++plans_held_;
    }
    while (hold_plans_) {
      if (!wanted()) return absl::CancelledError("nobody waits");
      absl::SleepFor(absl::Milliseconds(1));
    }
    return absl::OkStatus();
  }

  static absl::Status NotFound(const JobId& id) {
    return WithReason(absl::NotFoundError("job " + id.value() + " does not exist"), "JOB_NOT_FOUND",
                      {{"job", id.value()}});
  }

  absl::StatusOr<jobs::Job> Did(const std::string& verb, const JobId& id) {
    std::function<void(const std::string&)> wait;
    {
      absl::MutexLock lock(&mu_);
      verbs_.push_back(absl::StrCat(verb, " ", id.value()));
      wait = verb_wait_;
      PF_RETURN_IF_ERROR(std::exchange(next_error_, absl::OkStatus()));
    }
    if (wait) wait(verb);
    return Get(id);
  }

  struct Cache {
    graphcache::Snapshot snapshot;
    std::vector<graphcache::EntryInfo> entries;
  };

  const std::unique_ptr<jobs::JobStore> store_ = *jobs::JobStore::Open(":memory:");
  jobs::RequestLog requests_{*store_};
  CountedHub hub_;
  mutable absl::Mutex mu_;
  std::map<std::string, Cache> caches_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> hold_plans_ = false;
  int plans_held_ ABSL_GUARDED_BY(mu_) = 0;
  bool hold_commands_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<CommandDone> held_ ABSL_GUARDED_BY(mu_);
  std::vector<graphcache::Command> commands_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, jobs::Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> logs_ ABSL_GUARDED_BY(mu_);
  jobs::JobUpdate update_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<std::string> verbs_ ABSL_GUARDED_BY(mu_);
  std::function<void(const std::string&)> verb_wait_ ABSL_GUARDED_BY(mu_);
  std::vector<train::CheckpointInfo> checkpoints_ ABSL_GUARDED_BY(mu_);
  std::filesystem::path artifact_ ABSL_GUARDED_BY(mu_);
  absl::Status next_error_ ABSL_GUARDED_BY(mu_);
  graphcache::CachePlan plan_ ABSL_GUARDED_BY(mu_);
  graphcache::Census census_ ABSL_GUARDED_BY(mu_);
  spec::JobSpec planned_ ABSL_GUARDED_BY(mu_);
  absl::StatusOr<jobs::JobEvaluation> evaluation_ ABSL_GUARDED_BY(mu_) = jobs::JobEvaluation();
  jobs::EvaluationRequest evaluated_ ABSL_GUARDED_BY(mu_);
  bool plan_was_measured_ ABSL_GUARDED_BY(mu_) = true;
  jobs::CreateRequest created_ ABSL_GUARDED_BY(mu_);
  std::string created_of_ ABSL_GUARDED_BY(mu_);  // uid of its dataset
  std::optional<jobs::DatasetTraits> traits_ ABSL_GUARDED_BY(mu_);
  mutable std::atomic<int64_t> looks_ = 0;
  int64_t log_segment_bytes_ = int64_t{1} << 40;
  mutable std::vector<int64_t> asked_since_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<jobs::JobState> listed_states_ ABSL_GUARDED_BY(mu_);
  mutable std::string listed_filter_ ABSL_GUARDED_BY(mu_);
  mutable int64_t listed_page_size_ ABSL_GUARDED_BY(mu_) = 0;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

inline jobs::Job MakeJob(const std::string& id, jobs::JobState state) {
  jobs::Job job;
  job.id = JobId(id);
  job.spec.train.dataset = DatasetId("zinc");
  job.state = state;
  job.create_time = kCreateTime;
  return job;
}

}  // namespace permafrost::api
