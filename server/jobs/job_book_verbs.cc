// The part of JobBook that changes a job for its users: pause, resume, retry, update.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job.h"
#include "jobs/job_book.h"

namespace permafrost::jobs {
namespace {

absl::Status Unfit(const Job& job, std::string_view why, std::string_view reason) {
  return WithReason(absl::FailedPreconditionError(absl::StrCat("job ", job.id.value(), " ", AbslView(why))), reason,
                    {{"job", job.id.value()}});
}

absl::Status CancellingError(const Job& job) {
  return Unfit(job, "is being cancelled; once it is, it can be retried", "JOB_CANCELLING");
}

absl::Status UnreadableError(const Job& job) {
  return Unfit(job, "has a record that cannot be read", "JOB_UNREADABLE");
}

// Refuses a retry of a job that is not active, unless it failed or was cancelled.
absl::Status CheckEndedIsRetriable(const Job& job) {
  if (job.unreadable) return UnreadableError(job);
  if (job.state == JobState::kSucceeded) {
    return Unfit(job, "has succeeded; only a job that failed or was cancelled can be retried", "JOB_SUCCEEDED");
  }
  return absl::OkStatus();
}

// Refuses a retry of an active job that is paused or being cancelled.
absl::Status CheckActiveNeedsNoRetry(const Job& job) {
  if (job.state == JobState::kPaused) return Unfit(job, "is paused; resume it", "JOB_PAUSED");
  return job.state == JobState::kCancelling ? CancellingError(job) : absl::OkStatus();
}

void Apply(const JobUpdate& update, Job& job) {
  if (update.priority) job.spec.priority = *update.priority;
  if (update.max_runtime) job.spec.limits.max_runtime = *update.max_runtime;
  if (update.deadline) job.spec.limits.deadline = *update.deadline;
  if (update.labels) job.labels = *update.labels;
  for (const auto& [key, value] : update.label_changes) {
    if (value) {
      job.labels[key] = *value;
    } else {
      job.labels.erase(key);
    }
  }
}

}  // namespace

absl::Status JobBook::SetPausing(ActiveJob& active, bool pausing, const RequestKey& request) {
  Job next = WithoutEpochs(active);
  next.pausing = pausing;
  PF_RETURN_IF_ERROR(Unlocked([&] { return store_->Update(next, request); }));
  active.job.pausing = pausing;
  hub_.Notify(next.id.value());
  return absl::OkStatus();
}

absl::Status JobBook::Remember(const ActiveJob& active, const RequestKey& request) {
  if (request.id.empty()) return absl::OkStatus();
  const Job row = WithoutEpochs(active);
  return Unlocked([&] { return store_->Update(row, request); });
}

absl::StatusOr<Job> JobBook::Pause(const JobId& id, const RequestKey& request) {
  PF_ASSIGN_OR_RETURN(Turn turn, TakeTurn());
  PF_ASSIGN_OR_RETURN(const bool answered, store_->IsAnswered(request));
  if (answered) {
    turn.End();
    return Get(id);
  }
  ActiveJob* const found = FindActive(turn, id);
  if (found == nullptr) {
    PF_ASSIGN_OR_RETURN(const Job ended, store_->Get(id, kNoEpochs));
    return EndedError(ended);
  }
  ActiveJob& active = *found;
  absl::MutexLock lock(&mu_);
  if (active.job.state == JobState::kCancelling) return CancellingError(active.job);
  if (IsOnDevice(active.job.state) && !active.job.pausing) {
    PF_RETURN_IF_ERROR(SetPausing(active, true, request));
    active.live->RequestPause();
  } else if (active.job.state == JobState::kQueued) {
    Job next = Snapshot(active, 0);
    Move(next, JobState::kPaused, why::kPauseRequested);
    next.trouble.retry_time = absl::InfinitePast();
    AppendLog(id, telemetry::Severity::kInfo, absl::StrCat("paused after step ", next.progress.step));
    PF_RETURN_IF_ERROR(Commit(active, std::move(next), request));
    DecidePreemption();
  } else {
    PF_RETURN_IF_ERROR(Remember(active, request));
  }
  return Snapshot(active, 0);
}

absl::StatusOr<Job> JobBook::Resume(const JobId& id, const RequestKey& request) {
  PF_ASSIGN_OR_RETURN(Turn turn, TakeTurn());
  PF_ASSIGN_OR_RETURN(const bool answered, store_->IsAnswered(request));
  if (answered) {
    turn.End();
    return Get(id);
  }
  ActiveJob* const found = FindActive(turn, id);
  if (found == nullptr) {
    PF_ASSIGN_OR_RETURN(const Job ended, store_->Get(id, kNoEpochs));
    return EndedError(ended);
  }
  ActiveJob& active = *found;
  absl::MutexLock lock(&mu_);
  if (active.job.state == JobState::kCancelling) return CancellingError(active.job);
  if (IsOnDevice(active.job.state) && active.job.pausing) {
    PF_RETURN_IF_ERROR(SetPausing(active, false, request));
    active.live->WithdrawPause();
  } else if (active.job.state == JobState::kPaused) {
    Job next = Snapshot(active, 0);
    Move(next, JobState::kQueued, why::kResumed);
    AppendLog(id, telemetry::Severity::kInfo, "queued again after a pause");
    PF_RETURN_IF_ERROR(Commit(active, std::move(next), request));
    active.queued_at = clock_.Elapsed();
    active.not_before = active.queued_at;
    DecidePreemption();
    changed_.Set();
  } else {
    PF_RETURN_IF_ERROR(Remember(active, request));
  }
  return Snapshot(active, 0);
}

absl::Status JobBook::EndWait(ActiveJob& active, const RequestKey& request) {
  Job next = WithoutEpochs(active);
  next.trouble = {};
  next.deaths = {};
  PF_RETURN_IF_ERROR(Unlocked([&] { return store_->Update(next, request); }));
  active.job.trouble = {};
  active.job.deaths = {};
  active.not_before = -absl::InfiniteDuration();
  AppendLog(next.id, telemetry::Severity::kInfo, "waits no longer: a retry was asked for");
  DecidePreemption();
  changed_.Set();
  hub_.Notify(next.id.value());
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Job>> JobBook::FindRetriable(const JobId& id, const RequestKey& request) {
  PF_ASSIGN_OR_RETURN(const Turn turn, TakeTurn());
  if (ActiveJob* const active = FindActive(turn, id)) {
    absl::MutexLock lock(&mu_);
    PF_RETURN_IF_ERROR(CheckActiveNeedsNoRetry(active->job));
    const bool waits = active->job.state == JobState::kQueued && active->not_before > clock_.Elapsed();
    PF_RETURN_IF_ERROR(waits ? EndWait(*active, request) : Remember(*active, request));
    return std::nullopt;
  }
  PF_ASSIGN_OR_RETURN(Job job, store_->Get(id, kNoEpochs));
  PF_RETURN_IF_ERROR(CheckEndedIsRetriable(job));
  if (const Limit limit = PassedLimit(job.spec.limits, job.device_time, Now()); limit != Limit::kNone) {
    const absl::Status error = LimitError(limit, job.spec.limits);
    return Unfit(job, absl::StrCat("would fail again: ", error.message()), GetReason(error).reason);
  }
  return std::optional<Job>(std::move(job));
}

absl::StatusOr<Job> JobBook::Requeue(const JobId& id, const RequestKey& request) {
  // The epochs of an ended job do not change, so they can be read before the turn.
  PF_ASSIGN_OR_RETURN(Job history, store_->Get(id));
  Job queued;
  {
    PF_ASSIGN_OR_RETURN(const Turn turn, TakeTurn());
    PF_ASSIGN_OR_RETURN(Job job, store_->Get(id, kNoEpochs));
    job.epochs = std::move(history.epochs);
    PF_ASSIGN_OR_RETURN(std::vector<graphcache::Command> commands, store_->GetCacheCommands(id));
    const JobState from = job.state;
    Move(job, JobState::kQueued, why::kRetried);
    job.end_time = absl::InfinitePast();
    job.error.clear();
    job.failure = {};
    job.deaths = {};
    job.trouble = {};
    job.pausing = false;
    AppendLog(id, telemetry::Severity::kInfo, "queued again by a retry");
    PF_RETURN_IF_ERROR(store_->Update(job, request));
    absl::MutexLock lock(&mu_);
    CountJob(from, -1);
    CountJob(job.state, +1);
    queued = job;
    TakeUp(std::move(job), std::move(commands));
    DecidePreemption();
  }
  changed_.Set();
  hub_.Notify(id.value());
  return queued;
}

absl::StatusOr<Job> JobBook::Update(const JobId& id, const JobUpdate& update, const RequestKey& request) {
  PF_ASSIGN_OR_RETURN(Turn turn, TakeTurn());
  PF_ASSIGN_OR_RETURN(const bool answered, store_->IsAnswered(request));
  if (answered) {
    turn.End();
    return Get(id);
  }
  ActiveJob* const active = FindActive(turn, id);
  const bool ended = active == nullptr;
  Job next;
  if (ended) {
    // The epochs of an ended job do not change. They are read after the turn, because there may be a million.
    PF_ASSIGN_OR_RETURN(next, store_->Get(id, kNoEpochs));
  } else {
    absl::MutexLock lock(&mu_);
    next = Snapshot(*active, 0);
  }
  if (next.unreadable) return UnreadableError(next);
  const std::string etag = EtagOf(next);
  if (!update.etag.empty() && update.etag != etag) {
    return WithReason(absl::AbortedError(absl::StrCat("job ", id.value(), " has changed since: its etag is ", etag,
                                                      "; get it and try again")),
                      "ETAG_MISMATCH", {{"job", id.value()}});
  }
  Apply(update, next);
  Violations violations;
  Validate(next.labels, "job.labels", violations);
  spec::ValidatePriority(next.spec.priority, "job.spec.", violations);
  Validate(next.spec.limits, "job.spec.", violations);
  if (update.deadline) ValidateDeadline(*update.deadline, "job.spec.deadline", violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  const bool stores = EtagOf(next) != etag || !request.id.empty();
  if (stores) {
    PF_RETURN_IF_ERROR(store_->Describe(next, request));
    absl::MutexLock lock(&mu_);
    if (!ended) {
      active->job.spec.priority = next.spec.priority;
      active->job.spec.limits = next.spec.limits;
      if (active->live) active->live->SetLimits(next.spec.limits);
      active->job.labels = next.labels;
    }
    DecidePreemption();
  }
  turn.End();
  if (stores) {
    changed_.Set();
    hub_.Notify(id.value());
  }
  if (ended) return WithEpochs(std::move(next));
  return next;
}

}  // namespace permafrost::jobs
