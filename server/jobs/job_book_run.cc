// The part of JobBook that the device thread calls: it takes a job, reports its progress, and concludes it.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job_book.h"

namespace permafrost::jobs {
namespace {

// A change that the device thread makes waits for others, and fails only where the database is locked.
constexpr absl::Duration kForOthers = absl::InfiniteDuration();

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
  if (const absl::Status stored = Commit(*best, std::move(next)); !stored.ok()) {
    // Shown while it waits. It was no run that failed, so none is counted.
    best->job.trouble.error = OneLine(stored.message());
    hub_.Notify(best->job.id.value());
    return stored;
  }
  if (resumes) metrics_.CountResume();
  metrics_.ObserveQueueWait(clock_.Elapsed() - best->queued_at);
  best->commands->Open();
  best->live = std::move(live);
  running_ = best->job.id;
  // One may have come meanwhile that only waited for a moment.
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
    // Only what is shown until the run's first step; the run's own are in its checkpoint.
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
  const absl::Status epochs = StoreEpochs(id);
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
    // Meanwhile others can only have come behind them.
    auto& unsaved = active_.at(id).unsaved_epochs;
    unsaved.erase(unsaved.begin(), unsaved.begin() + static_cast<std::ptrdiff_t>(piece.size()));
  }
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
  // The device failed at one place again: other jobs run first, as after the server's death.
  if (next.deaths.count > std::max(active.job.deaths.count, 1)) {
    delay = RetryDelay(options_.first_retry, next.deaths.count);
  }
  if (delay > absl::ZeroDuration() && next.state == JobState::kQueued) next.trouble.retry_time = absl::Now() + delay;
  if (moved.ok()) moved = SaveGraphCache(active);
  Job stored = next;
  // A job that goes on later must not be left running on record for an epoch's sake: it would count as a death.
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

}  // namespace permafrost::jobs
