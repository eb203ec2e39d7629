#include "jobs/job_book.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/retry_delay.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job_log_text.h"

namespace permafrost::jobs {
namespace {

// Whether `a` is to run before `b`: priority, then age.
bool RunsBefore(const Job& a, const Job& b) {
  if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
  return a.sequence < b.sequence;
}

std::string EpochsContext(const ActiveJob& active) {
  return absl::StrCat("epochs from ", active.unsaved_epochs.front().epoch, " on");
}

}  // namespace

graphcache::Snapshot NoStepYet(const JobSpec& spec) {
  graphcache::Snapshot snapshot;
  snapshot.options = spec.train.graph_cache;
  return snapshot;
}

absl::Status EndedError(const Job& job) {
  return WithReason(absl::FailedPreconditionError(absl::StrCat("job ", job.id.value(), " has already ",
                                                               AbslView(kJobStateNames.Name(job.state)))),
                    "JOB_ENDED", {{"job", job.id.value()}});
}

absl::Status DrainingError() {
  return WithReason(absl::UnavailableError("the server drains and takes no new jobs"), "SERVER_DRAINING");
}

JobBook::JobBook(std::unique_ptr<JobStore> store, JobFiles files, telemetry::JobMetrics& metrics,
                 absl::Duration first_retry)
    : store_(std::move(store)), files_(std::move(files)), metrics_(metrics), first_retry_(first_retry) {}

Job JobBook::WithoutEpochs(const ActiveJob& active) { return Snapshot(active, std::numeric_limits<int64_t>::max()); }

Job JobBook::Snapshot(const ActiveJob& active, int64_t after_epoch) {
  const Job& from = active.job;
  // Member by member: copying all epochs to drop them would cost each watcher of a long job most of its time.
  Job job;
  job.id = from.id;
  job.request_id = from.request_id;
  job.spec = from.spec;
  job.labels = from.labels;
  job.state = from.state;
  job.pausing = from.pausing;
  job.create_time = from.create_time;
  job.start_time = from.start_time;
  job.end_time = from.end_time;
  job.error = from.error;
  job.progress = active.live ? active.live->progress() : from.progress;
  job.result = from.result;
  job.resumes = from.resumes;
  job.deaths = from.deaths;
  job.trouble = active.live ? active.live->trouble() : from.trouble;
  job.sequence = from.sequence;
  const auto first = std::ranges::upper_bound(from.epochs, after_epoch, {}, &train::EpochMetrics::epoch);
  job.epochs.assign(first, from.epochs.end());
  return job;
}

absl::StatusOr<Job> JobBook::Get(const JobId& id, int64_t after_epoch) const {
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = active_.find(id); it != active_.end()) return Snapshot(it->second, after_epoch);
  }
  return store_->Get(id, after_epoch);
}

absl::StatusOr<std::vector<Job>> JobBook::List(const ListOptions& options) const {
  PF_ASSIGN_OR_RETURN(std::vector<Job> jobs, store_->List(options));
  absl::MutexLock lock(&mu_);
  for (Job& job : jobs) {
    // Progress only: the rest of the row is what the filter chose by.
    const auto it = active_.find(job.id);
    if (it != active_.end() && it->second.live) job.progress = it->second.live->progress();
  }
  return jobs;
}

JobCounts JobBook::CountByState() const {
  JobCounts counts{};
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = counts_[i].load(std::memory_order_relaxed);
  return counts;
}

absl::Status JobBook::CheckDatasetUnused(const DatasetId& id) const {
  absl::MutexLock lock(&mu_);
  const auto in_use = [&](const Job& job) {
    return WithReason(
        absl::FailedPreconditionError(absl::StrCat("dataset ", id.value(), " is in use by job ", job.id.value(),
                                                   ", which is ", AbslView(kJobStateNames.Name(job.state)))),
        "DATASET_IN_USE", {{"dataset", id.value()}, {"job", job.id.value()}});
  };
  for (const auto& [job_id, active] : active_) {
    if (active.job.spec.train.dataset == id) return in_use(active.job);
  }
  if (creating_ && creating_->spec.train.dataset == id) return in_use(*creating_);
  return absl::OkStatus();
}

void JobBook::Reserve(std::optional<Job> creating) {
  absl::MutexLock lock(&mu_);
  creating_ = std::move(creating);
}

absl::Status JobBook::Insert(Job& job) {
  {
    absl::MutexLock lock(&mu_);
    if (draining()) return DrainingError();
    PF_RETURN_IF_ERROR(store_->Insert(job));
    TakeUp(Job(job), {});
    CountJob(job.state, +1);
  }
  changed_.Set();
  hub_.Notify(job.id.value());
  return absl::OkStatus();
}

ActiveJob& JobBook::TakeUp(Job&& job, std::vector<graphcache::Command> commands) {
  ActiveJob& active = active_[job.id];
  active.commands = std::make_shared<CommandLog>(job.spec.train.graph_cache, std::move(commands));
  active.queued_at = clock_.Elapsed();
  active.job = std::move(job);
  return active;
}

absl::StatusOr<Job> JobBook::Delete(const JobId& id) {
  absl::StatusOr<Job> job;
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = active_.find(id); it != active_.end()) {
      return WithReason(absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " is ",
                                                                   AbslView(kJobStateNames.Name(it->second.job.state)),
                                                                   "; cancel it before deleting it")),
                        "JOB_NOT_ENDED", {{"job", id.value()}});
    }
    job = store_->Get(id);
    PF_RETURN_IF_ERROR(job.status());
    PF_RETURN_IF_ERROR(store_->Delete(id));
    CountJob(job->state, -1);
    if (job->unreadable) metrics_.SetUnreadable(--unreadable_);
  }
  hub_.Notify(id.value());
  return job;
}

absl::StatusOr<Job> JobBook::Cancel(const JobId& id) {
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = active_.find(id); it != active_.end()) {
      ActiveJob& active = it->second;
      Job next = Snapshot(active, 0);
      if (next.state == JobState::kCancelling) return next;
      if (next.state == JobState::kRunning) {
        const std::shared_ptr<LiveRun> live = active.live;
        next.state = JobState::kCancelling;
        next.pausing = false;
        PF_RETURN_IF_ERROR(Commit(active, Job(next)));
        live->RequestCancel();
        return next;
      }
      next.state = JobState::kCancelled;
      next.end_time = absl::Now();
      next.trouble.retry_time = absl::InfinitePast();
      AppendLog(id, telemetry::Severity::kInfo, EndedLine(next));
      PF_RETURN_IF_ERROR(Commit(active, Job(next)));
      return next;
    }
  }
  PF_ASSIGN_OR_RETURN(Job job, store_->Get(id));
  if (job.state == JobState::kCancelled) return job;
  return EndedError(job);
}

JobId JobBook::Drain() {
  JobId running;
  {
    absl::MutexLock lock(&mu_);
    draining_.store(true, std::memory_order_release);
    running = running_;
  }
  changed_.Set();
  return running;
}

absl::StatusOr<std::optional<StartedJob>> JobBook::StartBest(absl::Duration& wait) {
  absl::MutexLock lock(&mu_);
  wait = absl::InfiniteDuration();
  if (draining()) return std::nullopt;
  const absl::Duration now = clock_.Elapsed();
  ActiveJob* best = nullptr;
  for (auto& [id, active] : active_) {
    if (active.job.state != JobState::kQueued) continue;
    if (active.not_before > now) {
      wait = std::min(wait, active.not_before - now);
    } else if (best == nullptr || RunsBefore(active.job, best->job)) {
      best = &active;
    }
  }
  if (best == nullptr) return std::nullopt;
  Job next = best->job;
  const bool resumes = next.start_time != absl::InfinitePast();
  next.state = JobState::kRunning;
  next.trouble.retry_time = absl::InfinitePast();
  if (resumes) {
    ++next.resumes;
  } else {
    next.start_time = absl::Now();
  }
  PF_ASSIGN_OR_RETURN(std::shared_ptr<LiveRun> live, MakeLiveRun(*best));
  PF_RETURN_IF_ERROR(Commit(*best, std::move(next)));
  if (resumes) metrics_.CountResume();
  metrics_.ObserveQueueWait(now - best->queued_at);
  best->commands->Open();
  best->live = std::move(live);
  running_ = best->job.id;
  return StartedJob{WithoutEpochs(*best), best->live};
}

absl::StatusOr<std::shared_ptr<LiveRun>> JobBook::MakeLiveRun(const ActiveJob& active) const {
  const Job& job = active.job;
  LiveRun::Cache cache;
  cache.snapshot = NoStepYet(job.spec);
  const auto stored = store_->GetGraphCache(job.id);
  const auto entries = store_->GetGraphCacheEntries(job.id);
  if (stored.ok() && entries.ok()) {
    if (*stored) cache = {**stored, std::make_shared<const std::vector<graphcache::EntryInfo>>(*entries)};
  } else {
    // Only what is shown until the run's first step; the run's own are in its checkpoint.
    const absl::Status& error = stored.ok() ? entries.status() : stored.status();
    telemetry::Log(telemetry::Severity::kWarning, StdView(error.message()));
  }
  Trouble trouble = job.trouble;
  trouble.retry_time = absl::InfinitePast();
  auto live = std::make_shared<LiveRun>(std::move(cache), active.commands, std::move(trouble));
  live->SetProgress(job.progress);
  return live;
}

absl::Status JobBook::StoreProgress(const JobId& id) {
  absl::MutexLock lock(&mu_);
  ActiveJob& active = active_.at(id);
  active.job.progress = active.live->progress();
  active.job.trouble = active.live->trouble();
  const absl::Status epochs = SaveEpochs(active);
  for (const absl::Status& stored : {epochs, store_->Update(active.job), SaveGraphCache(active)}) {
    if (stored.ok()) continue;
    telemetry::Log(telemetry::Severity::kWarning, absl::StrCat("progress of job ", id.value(), ": ", stored.message()));
  }
  return epochs;
}

void JobBook::RecordEpoch(const JobId& id, const train::EpochMetrics& metrics) {
  absl::MutexLock lock(&mu_);
  ActiveJob& active = active_.at(id);
  active.unsaved_epochs.push_back(metrics);
  // A resumed run tells epochs again that the one before had told.
  std::vector<train::EpochMetrics>& epochs = active.job.epochs;
  const auto at = std::ranges::lower_bound(epochs, metrics.epoch, {}, &train::EpochMetrics::epoch);
  if (at != epochs.end() && at->epoch == metrics.epoch) {
    *at = metrics;
  } else {
    epochs.insert(at, metrics);
  }
}

absl::StatusOr<Job> JobBook::Conclude(const JobId& id, const std::function<void(Job&)>& conclude) {
  absl::MutexLock lock(&mu_);
  ActiveJob& active = active_.at(id);
  Job next = WithoutEpochs(active);
  conclude(next);
  next.pausing = false;
  if (IsTerminal(next.state)) next.end_time = absl::Now();
  const bool goes_on = !IsTerminal(next.state);
  const absl::Duration delay =
      next.trouble.runs > active.job.trouble.runs ? RetryDelay(first_retry_, next.trouble.runs) : absl::ZeroDuration();
  if (delay > absl::ZeroDuration() && next.state == JobState::kQueued) next.trouble.retry_time = absl::Now() + delay;
  absl::Status moved = SaveEpochs(active);
  if (moved.ok()) moved = SaveGraphCache(active);
  Job stored = next;
  // A job that goes on later must not be left running on record for an epoch's sake: it would count as a death.
  if (moved.ok() || goes_on) {
    next.epochs.swap(active.job.epochs);
    moved = Commit(active, std::move(next));
    // NOLINTNEXTLINE(bugprone-use-after-move): Commit takes nothing of it on an error.
    if (!moved.ok()) next.epochs.swap(active.job.epochs);
  }
  PF_RETURN_IF_ERROR(moved);
  if (goes_on) {
    active.live.reset();
    active.queued_at = clock_.Elapsed();
    active.not_before = active.queued_at + delay;
  }
  running_ = JobId();
  return stored;
}

void JobBook::GiveUpRunning() {
  absl::MutexLock lock(&mu_);
  running_ = JobId();
}

absl::Status JobBook::Commit(ActiveJob& active, Job&& next) {
  const JobState from = active.job.state;
  const JobState to = next.state;
  if (!CanMove(from, to)) {
    return absl::InternalError(absl::StrCat("job ", next.id.value(), " cannot move from ",
                                            AbslView(kJobStateNames.Name(from)), " to ",
                                            AbslView(kJobStateNames.Name(to))));
  }
  PF_RETURN_IF_ERROR(store_->Update(next));
  CountJob(from, -1);
  CountJob(to, +1);
  const std::string key = next.id.value();
  if (IsTerminal(to)) {
    metrics_.CountFinished(kJobStateNames.Name(to));
    active_.erase(next.id);
  } else {
    active.job = std::move(next);
  }
  hub_.Notify(key);
  return absl::OkStatus();
}

absl::Status JobBook::SaveEpochs(ActiveJob& active) {
  if (active.unsaved_epochs.empty()) return absl::OkStatus();
  const absl::Status stored = store_->PutEpochs(active.job.id, active.unsaved_epochs);
  if (!stored.ok()) return Annotate(stored, EpochsContext(active));
  active.unsaved_epochs.clear();
  return absl::OkStatus();
}

absl::Status JobBook::SaveGraphCache(ActiveJob& active) {
  if (!active.live) return absl::OkStatus();
  const LiveRun::Cache cache = active.live->cache();
  const bool changed = cache.entries != active.stored_entries;
  const absl::Status stored =
      store_->PutGraphCache(active.job.id, cache.snapshot, changed ? cache.entries.get() : nullptr);
  if (!stored.ok()) return Annotate(stored, "graph cache");
  active.stored_entries = cache.entries;
  return absl::OkStatus();
}

std::optional<LiveRun::Cache> JobBook::LiveCache(const JobId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = active_.find(id);
  if (it == active_.end() || !it->second.live) return std::nullopt;
  return it->second.live->cache();
}

void JobBook::CountJob(JobState state, int64_t change) {
  std::atomic<int64_t>& count = counts_[static_cast<size_t>(state)];
  metrics_.SetJobs(kJobStateNames.Name(state), count.fetch_add(change, std::memory_order_relaxed) + change);
}

void JobBook::AppendLog(const JobId& id, telemetry::Severity severity, const std::string& line) const {
  const auto log = OpenLog(id);
  if (log.ok()) {
    (*log)->Write(severity, line);
  } else {
    metrics_.CountFailedLogLine();
    telemetry::Log(telemetry::Severity::kWarning, StdView(log.status().message()));
  }
}

}  // namespace permafrost::jobs
