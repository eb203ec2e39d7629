// A JobManager and a Catalog in memory, which a test drives by hand.
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
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"

namespace permafrost::api {

// Long enough for a slow machine under a sanitizer; a test that passes never waits for it.
inline constexpr absl::Duration kPatience = absl::Seconds(60);

// Counts the subscriptions that are alive and the calls that their listeners got.
class CountedHub {
 public:
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const std::string& key, ChangeHub::Listener listener) {
    absl::MutexLock lock(&mu_);
    ++alive_;
    return std::make_unique<Counted>(*this, hub_.Subscribe(key, [this, listener = std::move(listener)] {
      listener();
      absl::MutexLock called(&mu_);
      ++calls_;
    }));
  }
  void Notify(const std::string& key) { hub_.Notify(key); }
  bool AwaitAlive(int count) {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return alive_ == count; };
    return mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }
  bool AwaitCalls(int64_t count) {
    absl::MutexLock lock(&mu_);
    const auto reached = [this, count]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return calls_ >= count; };
    return mu_.AwaitWithTimeout(absl::Condition(&reached), kPatience);
  }

 private:
  class Counted : public ChangeHub::Subscription {
   public:
    Counted(CountedHub& hub, std::unique_ptr<ChangeHub::Subscription> inner) : hub_(hub), inner_(std::move(inner)) {}
    ~Counted() override {
      inner_.reset();
      absl::MutexLock lock(&hub_.mu_);
      --hub_.alive_;
    }

   private:
    CountedHub& hub_;
    std::unique_ptr<ChangeHub::Subscription> inner_;
  };

  absl::Mutex mu_;
  int alive_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t calls_ ABSL_GUARDED_BY(mu_) = 0;
  ChangeHub hub_{absl::ZeroDuration()};
};

class FakeJobManager : public jobs::JobManager {
 public:
  // No dataset is known.
  std::optional<jobs::DatasetTraits> TraitsOf(const DatasetId& /*id*/) const override { return std::nullopt; }
  // What a test does to a job.
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
  // What GetSince was asked for, in order.
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
  jobs::JobSpec planned() const {
    absl::MutexLock lock(&mu_);
    return planned_;
  }
  bool plan_was_measured() const {
    absl::MutexLock lock(&mu_);
    return plan_was_measured_;
  }
  // What Evaluate answers; it reports half of its rows first.
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
  absl::StatusOr<graphcache::CachePlan> PlanGraphCache(const jobs::JobSpec& spec, bool measure) override {
    absl::MutexLock lock(&mu_);
    planned_ = spec;
    plan_was_measured_ = measure;
    return plan_;
  }
  void SetCensus(graphcache::Census census) {
    absl::MutexLock lock(&mu_);
    census_ = std::move(census);
  }
  absl::StatusOr<graphcache::Census> TakeGraphCacheCensus(const jobs::JobSpec& spec,
                                                          graphcache::TorchRelease release) override {
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
    jobs::Job job;
    job.id = request.id.empty() ? JobId("made") : request.id;
    job.spec = request.spec;
    return job;
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
    // As of a job on the device: more at each look.
    if (jobs::IsOnDevice(job.state)) job.device_time = ++looks_ * absl::Milliseconds(1);
    std::erase_if(job.epochs, [after_epoch](const train::EpochMetrics& e) { return e.epoch <= after_epoch; });
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
  void CommandGraphCache(const JobId& id, const graphcache::Command& command, CommandDone done) override {
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
  static absl::Status NotFound(const JobId& id) {
    return WithReason(absl::NotFoundError("job " + id.value() + " does not exist"), "JOB_NOT_FOUND",
                      {{"job", id.value()}});
  }

  absl::StatusOr<jobs::Job> Did(const std::string& verb, const JobId& id) {
    {
      absl::MutexLock lock(&mu_);
      verbs_.push_back(absl::StrCat(verb, " ", id.value()));
      PF_RETURN_IF_ERROR(std::exchange(next_error_, absl::OkStatus()));
    }
    return Get(id);
  }

  struct Cache {
    graphcache::Snapshot snapshot;
    std::vector<graphcache::EntryInfo> entries;
  };

  CountedHub hub_;
  mutable absl::Mutex mu_;
  std::map<std::string, Cache> caches_ ABSL_GUARDED_BY(mu_);
  bool hold_commands_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<CommandDone> held_ ABSL_GUARDED_BY(mu_);
  std::vector<graphcache::Command> commands_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, jobs::Job> jobs_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::string> logs_ ABSL_GUARDED_BY(mu_);
  jobs::JobUpdate update_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<std::string> verbs_ ABSL_GUARDED_BY(mu_);
  std::vector<train::CheckpointInfo> checkpoints_ ABSL_GUARDED_BY(mu_);
  std::filesystem::path artifact_ ABSL_GUARDED_BY(mu_);
  absl::Status next_error_ ABSL_GUARDED_BY(mu_);
  graphcache::CachePlan plan_ ABSL_GUARDED_BY(mu_);
  graphcache::Census census_ ABSL_GUARDED_BY(mu_);
  jobs::JobSpec planned_ ABSL_GUARDED_BY(mu_);
  absl::StatusOr<jobs::JobEvaluation> evaluation_ ABSL_GUARDED_BY(mu_) = jobs::JobEvaluation();
  jobs::EvaluationRequest evaluated_ ABSL_GUARDED_BY(mu_);
  bool plan_was_measured_ ABSL_GUARDED_BY(mu_) = true;
  jobs::CreateRequest created_ ABSL_GUARDED_BY(mu_);
  mutable std::atomic<int64_t> looks_ = 0;
  int64_t log_segment_bytes_ = int64_t{1} << 40;
  mutable std::vector<int64_t> asked_since_ ABSL_GUARDED_BY(mu_);
  mutable std::vector<jobs::JobState> listed_states_ ABSL_GUARDED_BY(mu_);
  mutable std::string listed_filter_ ABSL_GUARDED_BY(mu_);
  mutable int64_t listed_page_size_ ABSL_GUARDED_BY(mu_) = 0;
  bool draining_ ABSL_GUARDED_BY(mu_) = false;
};

// A graph in memory: node 0 is the target of nodes 1, 2 and 3, weights 1, 2 and 3. Its verification goes as a test
// says.
class FakeGraph : public data::Graph {
 public:
  using Progress = std::function<bool(uint64_t done, uint64_t total)>;
  using Verification = std::function<absl::Status(const Progress&)>;

  FakeGraph() {
    view_.nodes = 4;
    view_.edges = 3;
    view_.in.offsets = data::Column<uint64_t>(in_offsets_);
    view_.in.neighbors = data::Column<data::NodeId>(in_neighbors_);
    view_.in.weights = data::Column<float>(weights_);
    view_.out.offsets = data::Column<uint64_t>(out_offsets_);
    view_.out.neighbors = data::Column<data::NodeId>(out_neighbors_);
  }
  void SetVerification(Verification verification) { verification_ = std::move(verification); }

  const data::GraphSummary& summary() const override { return summary_; }
  const data::GraphView& view() const override { return view_; }
  const data::NodeNames& names() const override { return names_; }
  absl::Status CheckIntact() const override { return absl::OkStatus(); }
  absl::Status VerifyAll(const Progress& progress) const override { return verification_(progress); }
  uint64_t mapped_bytes() const override { return 0; }

 private:
  const std::vector<uint64_t> in_offsets_{0, 3, 3, 3, 3}, out_offsets_{0, 0, 1, 2, 3};
  const std::vector<data::NodeId> in_neighbors_{1, 2, 3}, out_neighbors_{0, 0, 0};
  const std::vector<float> weights_{1, 2, 3};
  data::GraphSummary summary_;
  data::GraphView view_;
  data::NodeNames names_;
  Verification verification_ = [](const Progress&) { return absl::OkStatus(); };
};

class FakeCatalog : public data::Catalog {
 public:
  // What Open finds.
  void SetOpened(const std::string& id, data::OpenedDataset opened) {
    absl::MutexLock lock(&mu_);
    opened_[id] = std::move(opened);
  }
  void Put(data::Dataset dataset) {
    const std::string key = dataset.id.value();
    {
      absl::MutexLock lock(&mu_);
      datasets_[key] = std::move(dataset);
    }
    hub_.Notify(key);
  }
  CountedHub& hub() { return hub_; }
  // What Delete waits for, as for a slow disk.
  void SetDeleteWait(std::function<void()> wait) {
    absl::MutexLock lock(&mu_);
    delete_wait_ = std::move(wait);
  }

  absl::StatusOr<data::Dataset> Import(const DatasetId& id, data::ImportOptions options) override {
    data::Dataset dataset;
    dataset.id = id;
    dataset.options = std::move(options);
    Put(dataset);
    return dataset;
  }
  absl::StatusOr<data::Dataset> Get(const DatasetId& id) const override {
    absl::MutexLock lock(&mu_);
    const auto it = datasets_.find(id.value());
    if (it == datasets_.end()) return NotFound(id);
    return it->second;
  }
  std::vector<data::Dataset> List() const override {
    absl::MutexLock lock(&mu_);
    std::vector<data::Dataset> all;
    all.reserve(datasets_.size());
    for (const auto& [id, dataset] : datasets_) all.push_back(dataset);
    return all;
  }
  absl::Status Delete(const DatasetId& id, const std::function<absl::Status()>& in_use) override {
    std::function<void()> wait;
    {
      absl::MutexLock lock(&mu_);
      wait = delete_wait_;
    }
    if (wait) wait();
    {
      absl::MutexLock lock(&mu_);
      if (datasets_.count(id.value()) == 0) return NotFound(id);
      PF_RETURN_IF_ERROR(in_use());
      datasets_.erase(id.value());
    }
    hub_.Notify(id.value());
    return absl::OkStatus();
  }
  absl::StatusOr<std::filesystem::path> Resolve(const std::filesystem::path& source) const override { return source; }
  absl::StatusOr<data::OpenedDataset> Open(const DatasetId& id) const override {
    absl::MutexLock lock(&mu_);
    const auto it = opened_.find(id.value());
    if (it == opened_.end()) return NotFound(id);
    return it->second;
  }
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const DatasetId& id, ChangeHub::Listener listener) override {
    return hub_.Subscribe(id.value(), std::move(listener));
  }
  Usage usage() const override {
    Usage usage;
    for (const data::Dataset& dataset : List()) ++usage.datasets[static_cast<size_t>(dataset.state)];
    return usage;
  }
  void StopImports() override {}

 private:
  static absl::Status NotFound(const DatasetId& id) {
    return WithReason(absl::NotFoundError("dataset " + id.value() + " does not exist"), "DATASET_NOT_FOUND");
  }

  CountedHub hub_;
  mutable absl::Mutex mu_;
  std::map<std::string, data::Dataset> datasets_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, data::OpenedDataset> opened_ ABSL_GUARDED_BY(mu_);
  std::function<void()> delete_wait_ ABSL_GUARDED_BY(mu_);
};

inline jobs::Job MakeJob(const std::string& id, jobs::JobState state) {
  jobs::Job job;
  job.id = JobId(id);
  job.spec.train.dataset = DatasetId("zinc");
  job.state = state;
  job.create_time = absl::FromUnixSeconds(1'700'000'000);
  return job;
}

}  // namespace permafrost::api
