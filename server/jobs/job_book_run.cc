// The part of JobBook that gives jobs the device. The device thread takes a job, reports its progress, and concludes
// it. Attend cares for waiting jobs: it fails jobs whose limits have passed, and decides whether the job on the
// device makes room for another. Recover takes over what the previous server left.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job.h"
#include "jobs/job_book.h"
#include "jobs/job_files.h"
#include "jobs/job_log_text.h"

namespace permafrost::jobs {
namespace {

// The device thread waits for other changes of the book without limit. So its own change fails only if the database
// is locked.
constexpr absl::Duration kForOthers = absl::InfiniteDuration();

// Returns true if `a` is to run before `b`: by priority, then by age.
bool RunsBefore(const Job& a, const Job& b) {
  if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
  return a.sequence < b.sequence;
}

// Returns the limit that a waiting job has passed. For a paused job, only the deadline counts, because its user may
// raise max_runtime before the job is resumed.
Limit LimitOfWaiting(const Job& job, absl::Time now) {
  const bool paused = job.state == JobState::kPaused;
  return PassedLimit(job.spec.limits, paused ? absl::ZeroDuration() : job.device_time, now);
}

}  // namespace

absl::StatusOr<std::optional<StartedJob>> JobBook::StartBest(absl::Duration& wait) {
  PF_ASSIGN_OR_RETURN(const Turn turn, TakeTurn(kForOthers));
  absl::MutexLock lock(&mu_);
  wait = absl::InfiniteDuration();
  if (draining()) return std::nullopt;
  PF_RETURN_IF_ERROR(FailOverdue());
  ActiveJob* best = FindBest(wait);
  if (best == nullptr) return std::nullopt;
  Job next = WithoutEpochs(*best);
  const bool resumes = next.start_time != absl::InfinitePast();
  Move(next, next.interrupted ? JobState::kRecovering : JobState::kPreparing, why::kTaken);
  next.trouble.retry_time = absl::InfinitePast();
  if (resumes) {
    ++next.resumes;
  } else {
    next.start_time = absl::Now();
  }
  PF_ASSIGN_OR_RETURN(std::shared_ptr<LiveRun> live, Unlocked([&] { return MakeLiveRun(*best); }));
  if (absl::Status stored = Commit(*best, std::move(next)); !stored.ok()) {
    // Shows the error while the job waits. Counts no run, because none failed.
    best->job.trouble.error = OneLine(stored.message());
    hub_.Notify(best->job.id.value());
    return stored;
  }
  if (resumes) metrics_.CountResume();
  metrics_.ObserveQueueWait(clock_.Elapsed() - best->queued_at);
  best->commands->Open();
  best->live = std::move(live);
  running_ = best->job.id;
  // During the store call, the wait of another job may have ended, or a new job may have come.
  DecidePreemption();
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
    // The stored cache is only shown until the run's first step. The run restores its cache from the checkpoint.
    const absl::Status& error = stored.ok() ? entries.status() : stored.status();
    telemetry::Log(telemetry::Severity::kWarning, StdView(error.message()));
  }
  Trouble trouble = job.trouble;
  trouble.retry_time = absl::InfinitePast();
  auto live = std::make_shared<LiveRun>(std::move(cache), active.commands, std::move(trouble), job.device_time,
                                        job.spec.limits, options_.now);
  live->SetProgress(job.progress);
  return live;
}

bool JobBook::Advance(const JobId& id, JobState state) {
  absl::Status moved;
  if (const absl::StatusOr<Turn> turn = TakeTurn(kForOthers); turn.ok()) {
    absl::MutexLock lock(&mu_);
    ActiveJob& active = active_.at(id);
    if (active.job.state == JobState::kCancelling || !CanMove(active.job.state, state)) return true;
    Job next = WithoutEpochs(active);
    if (state == JobState::kRunning) {
      next.interrupted = false;
      Move(next, state, why::kStepped);
    } else {
      Move(next, state, why::kCapturing);
    }
    moved = Commit(active, std::move(next));
  } else {
    moved = turn.status();
  }
  if (!moved.ok()) {
    telemetry::Log(telemetry::Severity::kWarning,
                   absl::StrCat("job ", id.value(), " is ", AbslView(kJobStateNames.Name(state)),
                                ", which cannot be stored yet: ", moved.message()));
  }
  return moved.ok();
}

absl::Status JobBook::StoreProgress(const JobId& id) {
  absl::Status epochs = StoreEpochs(id);
  PF_ASSIGN_OR_RETURN(const Turn turn, TakeTurn(kForOthers));
  absl::MutexLock lock(&mu_);
  const auto it = active_.find(id);
  if (it == active_.end() || !it->second.live) return epochs;
  ActiveJob& active = it->second;
  active.job.progress = active.live->progress();
  active.job.trouble = active.live->trouble();
  active.job.device_time = active.live->device_time();
  const Job row = WithoutEpochs(active);
  const absl::Status stored = Unlocked([&] { return store_->Update(row); });
  const absl::Status cache = SaveGraphCache(active);
  if (!epochs.ok()) return epochs;
  return stored.ok() ? cache : stored;
}

absl::Status JobBook::StoreEpochs(const JobId& id) {
  absl::MutexLock saving(&save_mu_);
  while (true) {
    std::deque<train::EpochMetrics> piece;
    {
      absl::MutexLock lock(&mu_);
      const auto it = active_.find(id);
      if (it == active_.end()) return absl::OkStatus();
      const auto& unsaved = it->second.unsaved_epochs;
      piece.assign(unsaved.begin(),
                   unsaved.begin() + static_cast<std::ptrdiff_t>(std::min(unsaved.size(), kMostEpochs)));
    }
    if (piece.empty()) return absl::OkStatus();
    if (const absl::Status stored = store_->PutEpochs(id, piece); !stored.ok()) {
      return Annotate(stored, absl::StrCat("epochs from ", piece.front().epoch, " on"));
    }
    absl::MutexLock lock(&mu_);
    // Epochs that were recorded meanwhile come after the stored ones.
    auto& unsaved = active_.at(id).unsaved_epochs;
    unsaved.erase(unsaved.begin(), unsaved.begin() + static_cast<std::ptrdiff_t>(piece.size()));
  }
}

void JobBook::RecordEpoch(const JobId& id, const train::EpochMetrics& metrics) {
  absl::MutexLock lock(&mu_);
  ActiveJob& active = active_.at(id);
  active.unsaved_epochs.push_back(metrics);
  // A resumed run may report epochs again that an earlier run reported.
  std::vector<train::EpochMetrics>& epochs = active.job.epochs;
  const auto at = std::ranges::lower_bound(epochs, metrics.epoch, {}, &train::EpochMetrics::epoch);
  if (at != epochs.end() && at->epoch == metrics.epoch) {
    *at = metrics;
  } else {
    epochs.insert(at, metrics);
  }
}

absl::StatusOr<Job> JobBook::Conclude(const JobId& id, const std::function<void(Job&)>& conclude) {
  PF_ASSIGN_OR_RETURN(const Turn turn, TakeTurn(kForOthers));
  absl::Status moved = StoreEpochs(id);
  absl::MutexLock lock(&mu_);
  ActiveJob& active = active_.at(id);
  Job next = WithoutEpochs(active);
  conclude(next);
  next.pausing = false;
  if (IsTerminal(next.state)) next.end_time = absl::Now();
  const bool goes_on = !IsTerminal(next.state);
  absl::Duration delay;
  if (next.trouble.runs > active.job.trouble.runs) delay = RetryDelay(options_.first_retry, next.trouble.runs);
  if (next.history.changes.back().reason == why::kTooFewPeers) delay = options_.peers_retry;
  // If the device failed again at the same place, the job waits and lets other jobs run first, as after a death of
  // the server.
  if (next.deaths.count > std::max(active.job.deaths.count, 1)) {
    delay = RetryDelay(options_.first_retry, next.deaths.count);
  }
  if (delay > absl::ZeroDuration() && next.state == JobState::kQueued) next.trouble.retry_time = absl::Now() + delay;
  if (moved.ok()) moved = SaveGraphCache(active);
  Job stored = next;
  // If the job goes on later, commits it even if an epoch could not be stored. Otherwise the record would say that it
  // is on the device, and the next start would count this as a death of the server.
  if (moved.ok() || goes_on) {
    moved = Commit(active, std::move(next));
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

absl::Status JobBook::SaveGraphCache(ActiveJob& active) {
  if (!active.live) return absl::OkStatus();
  const LiveRun::Cache cache = active.live->cache();
  const bool changed = cache.entries != active.stored_entries;
  const absl::Status stored = Unlocked(
      [&] { return store_->PutGraphCache(active.job.id, cache.snapshot, changed ? cache.entries.get() : nullptr); });
  if (!stored.ok()) return Annotate(stored, "graph cache");
  active.stored_entries = cache.entries;
  return absl::OkStatus();
}

void JobBook::Attend() {
  const absl::StatusOr<Turn> turn = TakeTurn();
  // While the database is locked, no job can be failed. The next call decides which job may run first.
  if (!turn.ok()) return;
  absl::MutexLock lock(&mu_);
  if (draining()) return;
  const absl::Status failed = FailOverdue();
  if (!failed.ok() && !overdue_told_) {
    telemetry::Log(telemetry::Severity::kError,
                   absl::StrCat("a job whose time is over cannot be failed yet: ", failed.message()));
  }
  overdue_told_ = !failed.ok();
  DecidePreemption();
}

absl::Status JobBook::FailOverdue() {
  const absl::Time now = Now();
  std::vector<std::pair<JobId, Limit>> overdue;
  for (const auto& [id, active] : active_) {
    if (!IsWaiting(active.job.state)) continue;
    if (const Limit limit = LimitOfWaiting(active.job, now); limit != Limit::kNone) overdue.emplace_back(id, limit);
  }
  for (const auto& [id, limit] : overdue) {
    ActiveJob& active = active_.at(id);
    Job next = WithoutEpochs(active);
    MoveToFailed(next, LimitError(limit, next.spec.limits));
    next.end_time = absl::Now();
    next.trouble.retry_time = absl::InfinitePast();
    const std::string line = EndedLine(next);
    PF_RETURN_IF_ERROR(Commit(active, std::move(next)));
    AppendLog(id, telemetry::Severity::kError, line);
    telemetry::Log(telemetry::Severity::kError, absl::StrCat("job ", id.value(), ": ", line));
  }
  return absl::OkStatus();
}

ActiveJob* JobBook::FindBest(absl::Duration& wait) {
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
  return best;
}

void JobBook::DecidePreemption() {
  if (!options_.preempt || draining() || running_.empty()) return;
  const auto it = active_.find(running_);
  if (it == active_.end() || !it->second.live) return;
  const absl::Duration now = clock_.Elapsed();
  const ActiveJob* best = nullptr;
  for (const auto& [id, active] : active_) {
    // If errors of the machine have ended runs of a job, the job waits for a free device. It might fail again and
    // again, and the job that made room for it would make no progress.
    const bool may_preempt =
        active.job.state == JobState::kQueued && active.not_before <= now && active.job.trouble.runs == 0;
    if (may_preempt && (best == nullptr || RunsBefore(active.job, best->job))) best = &active;
  }
  const bool makes_room = best != nullptr && best->job.spec.priority > it->second.job.spec.priority;
  it->second.live->SetPreempted(makes_room ? best->job.id : JobId());
}

namespace {

constexpr int64_t kPageSize = 1000;
// Returns a text with only the first few names, because there may be thousands.
std::string Some(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  const size_t shown = std::min(names.size(), kShown);
  return absl::StrCat(absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
                      names.size() > shown ? ", ..." : "");
}

}  // namespace

absl::Status JobBook::Recover(bool quarantine_unknown) {
  absl::MutexLock lock(&mu_);
  std::set<JobId> on_record;
  std::vector<JobId> unfinished;
  ListOptions page;
  page.page_size = kPageSize;
  while (true) {
    PF_ASSIGN_OR_RETURN(const std::vector<Job> jobs, store_->List(page));
    if (jobs.empty()) break;
    for (const Job& job : jobs) {
      on_record.insert(job.id);
      // A kill may have stopped a deletion between MarkDeleted and the deletion of the row.
      files_.UnmarkDeleted(job.id);
      if (!IsTerminal(job.state)) {
        unfinished.push_back(job.id);
        continue;
      }
      CountJob(job.state, +1);
      if (!job.unreadable) continue;
      ++unreadable_;
      telemetry::Log(telemetry::Severity::kError, job.error);
    }
    page.before_sequence = jobs.back().sequence;
  }
  // A kill may have stopped the deletion of the last job before the directory was moved. So a store without jobs
  // counts as foreign only if it never held a job.
  PF_ASSIGN_OR_RETURN(const int64_t last_sequence, store_->LastSequence());
  PF_RETURN_IF_ERROR(QuarantineUnknownDirectories([&](const JobId& id) { return on_record.contains(id); },
                                                  last_sequence, quarantine_unknown));
  for (const auto& [state, name] : kJobStateNames.rows) CountJob(state, 0);
  for (const JobId& id : unfinished) PF_RETURN_IF_ERROR(RecoverJob(id));
  metrics_.SetUnreadable(unreadable_);
  return absl::OkStatus();
}

absl::Status JobBook::QuarantineUnknownDirectories(const std::function<bool(const JobId&)>& on_record,
                                                   int64_t last_sequence, bool quarantine_unknown) {
  PF_ASSIGN_OR_RETURN(const JobFiles::Strays strays, files_.FindUnknownDirectories(on_record, last_sequence));
  if (last_sequence == 0 && !strays.with_work.empty() && !quarantine_unknown) {
    return absl::FailedPreconditionError(absl::StrCat(
        "permafrost.db never held a job, but ", files_.directory().string(), " holds checkpoints or artifacts of ",
        strays.with_work.size(), strays.with_work.size() == 1 ? " job (" : " jobs (", Some(strays.with_work),
        "): put the database that belongs to them back, or start with --quarantine-unknown-jobs, which renames them to "
        ".quarantine-* and deletes nothing"));
  }
  PF_ASSIGN_OR_RETURN(const std::vector<std::filesystem::path> quarantined, files_.ClearStrays(strays));
  for (const std::filesystem::path& path : quarantined) {
    telemetry::Log(telemetry::Severity::kWarning,
                   absl::StrCat("files of no job on record were moved to ", path.string(),
                                ": delete them by hand once nobody misses them"));
  }
  metrics_.CountQuarantined(static_cast<int64_t>(quarantined.size()));
  return absl::OkStatus();
}

absl::Status JobBook::RecoverJob(const JobId& id) {
  PF_ASSIGN_OR_RETURN(Job job, store_->Get(id));
  absl::StatusOr<std::vector<graphcache::Command>> commands = std::vector<graphcache::Command>();
  if (!job.unreadable) commands = store_->GetCacheCommands(id);
  if (job.unreadable || absl::IsDataLoss(commands.status())) {
    // The damage affects only this job. A record that cannot be read is left unchanged.
    if (!job.unreadable) job.error = std::string(commands.status().message());
    CountJob(JobState::kFailed, +1);
    if (job.unreadable) ++unreadable_;
    telemetry::Log(telemetry::Severity::kError, job.error);
    if (!job.unreadable) {
      // Stores the failure, because otherwise Get would show the job as if it still ran.
      MoveToFailed(job, WithReason(absl::DataLossError(job.error), "RECORD_UNREADABLE"));
      job.end_time = absl::Now();
      AppendLog(id, telemetry::Severity::kError, EndedLine(job));
      return store_->Update(job);
    }
    return absl::OkStatus();
  }
  PF_RETURN_IF_ERROR(commands.status());
  const JobState was = job.state;
  CountJob(was, +1);
  // Older versions did not clear this field.
  if (!IsOnDevice(was)) job.pausing = false;
  // A job that never began has waited since its creation. By the present clock, that time may lie in the future. Any
  // other job is queued again now.
  const bool began = job.start_time != absl::InfinitePast();
  const absl::Duration waited = began ? absl::ZeroDuration() : std::max(Now() - job.create_time, absl::ZeroDuration());
  ActiveJob& active = TakeUp(std::move(job), *std::move(commands));
  active.queued_at -= waited;
  if (was == JobState::kCancelling) {
    Job next = active.job;
    Move(next, JobState::kCancelled, why::kCancelRequested);
    next.end_time = absl::Now();
    AppendLog(id, telemetry::Severity::kInfo, EndedLine(next));
    return Commit(active, std::move(next));
  }
  if (IsOnDevice(was)) return RecoverRunning(active);
  if (was == JobState::kQueued && active.job.trouble.retry_time != absl::InfinitePast()) {
    // The job waits for the rest of its wait. The rest is clamped, because the wall clock may have been set back
    // since the wait began.
    const absl::Duration left = active.job.trouble.retry_time - absl::Now();
    active.not_before = clock_.Elapsed() + std::clamp(left, absl::ZeroDuration(), kLongestRetry);
  }
  return absl::OkStatus();
}

absl::Status JobBook::RecoverRunning(ActiveJob& active) {
  Job next = active.job;
  const JobId id = next.id;
  next.deaths = CountDeath(next.deaths, RunMark::Read(files_.Mark(id)), BootId(), next.progress.checkpoint_step);
  const int32_t deaths = next.deaths.count;
  if (deaths >= kMostDeaths) {
    MoveToFailed(next, WithReason(absl::AbortedError(absl::StrCat(
                                      "the server died ", deaths, " times while this job ran, each time ",
                                      PlaceText(next.deaths),
                                      "; if the system's log tells of too little memory, submit it again with a "
                                      "smaller batch_size or model")),
                                  "SERVER_DIED_AGAIN"));
    next.end_time = absl::Now();
    AppendLog(id, telemetry::Severity::kError, EndedLine(next));
    return Commit(active, std::move(next));
  }
  // If a pause was accepted, it stays in force.
  const bool paused = std::exchange(next.pausing, false);
  next.interrupted = true;
  std::string line =
      absl::StrCat("interrupted: the server ended without a drain; ", paused ? "paused" : "queued again");
  // The first death may have any cause, such as a kill. From the second death at the same place on, the job waits,
  // and the wait doubles. So a job that kills the server leaves time for other jobs. And if the server is killed from
  // outside before the job makes progress, the job does not run often enough to be failed.
  absl::Duration delay;
  if (deaths >= 2 && !paused) {
    delay = RetryDelay(options_.first_retry, deaths);
    next.trouble.error =
        absl::StrCat("the server died ", deaths, " times while this job ran, each time ", PlaceText(next.deaths));
    next.trouble.retry_time = absl::Now() + delay;
    absl::StrAppend(&line, ", to run in ", absl::FormatDuration(delay), ": it died ", deaths, " times ",
                    PlaceText(next.deaths));
  }
  if (paused) {
    Move(next, JobState::kPaused, why::kPauseRequested, line);
  } else {
    Move(next, JobState::kQueued, why::kServerDied, line);
  }
  AppendLog(id, telemetry::Severity::kWarning, line);
  PF_RETURN_IF_ERROR(Commit(active, std::move(next)));
  active.not_before = clock_.Elapsed() + delay;
  return absl::OkStatus();
}

}  // namespace permafrost::jobs
