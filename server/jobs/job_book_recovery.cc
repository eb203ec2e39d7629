// JobBook::Recover, which takes up what the server before left.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job_book.h"
#include "jobs/job_files.h"
#include "jobs/job_log_text.h"

namespace permafrost::jobs {
namespace {

constexpr int64_t kPageSize = 1000;
// Some of the names: there may be thousands.
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
      // A kill cut a deletion short before the row was deleted.
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
  // A deletion of the last job may have been cut short before its directory was moved: a store that once held jobs is
  // no sign of a foreign one.
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
    // Costs this job only. On record it stays as it is.
    if (!job.unreadable) job.error = std::string(commands.status().message());
    CountJob(JobState::kFailed, +1);
    if (job.unreadable) ++unreadable_;
    telemetry::Log(telemetry::Severity::kError, job.error);
    if (!job.unreadable) {
      // Get would show it as it was: as if it still ran.
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
  // Older versions let it stand.
  if (!IsOnDevice(was)) job.pausing = false;
  // One that never began has waited since its creation, which the clock may put into the future; any other was queued
  // again when its run was cut short.
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
    // The job waits for the rest of its time, which is clamped: the wall clock may have been set back since.
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
  // A pause that was accepted holds.
  const bool paused = std::exchange(next.pausing, false);
  next.interrupted = true;
  std::string line =
      absl::StrCat("interrupted: the server ended without a drain; ", paused ? "paused" : "queued again");
  // Once may be anything, such as a kill. From the second time at the same place on the wait doubles: a job that does
  // kill the server leaves it time for others, and one that is killed from outside before it gets anywhere is not run
  // often enough to be failed.
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
