// The part of JobBook that looks after waiting jobs: which one is next, whose time is over, and which job makes room
// for which.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/string_view.h"
#include "jobs/job.h"
#include "jobs/job_book.h"
#include "jobs/job_log_text.h"

namespace permafrost::jobs {
namespace {

// True if `a` is to run before `b`: by priority, then by age.
bool RunsBefore(const Job& a, const Job& b) {
  if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
  return a.sequence < b.sequence;
}

// A paused job may be given more time before it is resumed; its deadline passes all the same.
Limit LimitOfWaiting(const Job& job, absl::Time now) {
  const bool paused = job.state == JobState::kPaused;
  return PassedLimit(job.spec.limits, paused ? absl::ZeroDuration() : job.device_time, now);
}

}  // namespace

void JobBook::Attend() {
  const absl::StatusOr<Turn> turn = TakeTurn();
  // Where the database is locked nothing can be failed; who may run first is found out the next time.
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
    // One that errors of the machine have ended waits for a free device: it might end the same way, again and again,
    // and the job that makes room would never get anywhere.
    const bool may_preempt =
        active.job.state == JobState::kQueued && active.not_before <= now && active.job.trouble.runs == 0;
    if (may_preempt && (best == nullptr || RunsBefore(active.job, best->job))) best = &active;
  }
  const bool makes_room = best != nullptr && best->job.spec.priority > it->second.job.spec.priority;
  it->second.live->SetPreempted(makes_room ? best->job.id : JobId());
}

}  // namespace permafrost::jobs
