// The device thread's half of the job manager: it takes jobs one at a time and is the only caller of Runner::Run.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/string_view.h"
#include "jobs/job_log_text.h"
#include "jobs/manager_impl.h"

namespace permafrost::jobs {
namespace {

// Between tries of a store write that must not be lost, such as on a full disk.
constexpr absl::Duration kRetryInterval = absl::Seconds(1);

// Whether `a` is to run before `b`: what waits first, then priority, then age.
bool RunsBefore(const Job& a, const Job& b) {
  const bool a_waits = a.state == JobState::kQueued, b_waits = b.state == JobState::kQueued;
  if (a_waits != b_waits) return a_waits;
  if (a.spec.priority != b.spec.priority) return a.spec.priority > b.spec.priority;
  return a.sequence < b.sequence;
}

// Where a job goes from `job.state` (running or cancelling) when its run ended so. Sets state, error and result.
void Conclude(const absl::StatusOr<train::RunOutcome>& outcome, bool draining, Job& job) {
  const auto fail = [&](std::string error) {
    job.state = JobState::kFailed;
    job.error = std::move(error);
    std::ranges::replace(job.error, '\n', ' ');
  };
  if (!outcome.ok()) return fail(std::string(outcome.status().message()));
  switch (outcome->end) {
    case train::RunEnd::kSucceeded:
      job.state = JobState::kSucceeded;
      job.result = outcome->result;
      return;
    case train::RunEnd::kCancelled:
    case train::RunEnd::kDrained:
      if (job.state == JobState::kCancelling) {
        // Also when a cancel came after the run had stopped for the drain.
        job.state = JobState::kCancelled;
      } else if (draining) {
        job.state = JobState::kQueued;
      } else {
        fail("the run stopped before its end although nothing asked it to");
      }
      return;
  }
}

std::string LastLine(const Job& job) {
  if (job.state != JobState::kQueued) return EndedLine(job);
  return absl::StrCat("drained after step ", job.progress.step, ": queued for the server's next start");
}

}  // namespace

void JobManagerImpl::DeviceLoop() {
  while (std::optional<Run> run = TakeNext()) {
    Finish(*run, Execute(*run));
  }
  absl::MutexLock lock(&mu_);
  device_busy_ = false;
}

std::optional<JobManagerImpl::Run> JobManagerImpl::TakeNext() {
  absl::MutexLock lock(&mu_);
  const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return draining() || counts_[static_cast<size_t>(JobState::kQueued)] > 0;
  };
  while (true) {
    mu_.Await(absl::Condition(&ready));
    if (draining()) return std::nullopt;
    Active& best = std::ranges::min_element(active_, RunsBefore, [](auto& entry) -> const Job& {
                     return entry.second.job;
                   })->second;
    Job next = best.job;
    const absl::Time now = absl::Now();
    const bool resumes = next.start_time != absl::InfinitePast();
    next.state = JobState::kRunning;
    if (resumes) {
      ++next.resumes;
    } else {
      next.start_time = now;
    }
    absl::StatusOr<std::shared_ptr<LiveRun>> live = MakeLiveRun(next);
    if (const absl::Status moved = live.ok() ? Commit(best, next) : live.status(); !moved.ok()) {
      telemetry::Log(telemetry::Severity::kError, StdView(moved.message()));
      if (!WaitToRetry()) return std::nullopt;
      continue;
    }
    if (resumes) metrics_.job.CountResume();
    metrics_.job.ObserveQueueWait(now - best.queued_since);
    best.live = *std::move(live);
    running_ = next.id;
    next.epochs.clear();
    return Run{std::move(next), best.live, nullptr};
  }
}

absl::StatusOr<train::RunOutcome> JobManagerImpl::Execute(Run& run) {
  const JobId& id = run.job.id;
  // Made at creation; again in case someone cleared it away by hand.
  PF_RETURN_IF_ERROR(CreateDirectories(files_.Directory(id)));
  PF_ASSIGN_OR_RETURN(run.log, telemetry::JobLog::Open(files_.Log(id)));
  const std::string started = StartedLine(run.job, kDeviceNames.Name(runner_.device()), runner_.threads());
  run.log->Write(telemetry::Severity::kInfo, started);
  telemetry::Log(telemetry::Severity::kInfo, absl::StrCat("job ", id.value(), ": ", started));
  hub_.Notify(id.value());

  const train::TrainOptions& options = run.job.spec.train;
  auto dataset = catalog_.Open(options.dataset);
  if (!dataset.ok()) return Annotate(dataset.status(), absl::StrCat("cannot open dataset ", options.dataset.value()));
  RunHooks hooks;
  hooks.notify = [this, &id] { hub_.Notify(id.value()); };
  hooks.store_progress = [this, &id] { StoreProgress(id); };
  hooks.record_epoch = [this, &id](const train::EpochMetrics& metrics) { RecordEpoch(id, metrics); };
  hooks.store_commands = [this, &id](const std::vector<graphcache::Command>& commands) {
    return store_->PutCacheCommands(id, commands, nullptr);
  };
  hooks.now = [] { return absl::Now(); };
  JobRunContext context(options, run.job.resumes > 0, draining_, *run.live, *run.log, metrics_, std::move(hooks));
  return runner_.Run({options, *std::move(dataset), files_.Directory(id)}, context);
}

void JobManagerImpl::Finish(Run& run, const absl::StatusOr<train::RunOutcome>& outcome) {
  const JobId& id = run.job.id;
  const bool ended = MoveOn(run, outcome);
  for (const CommandDone& done : run.live->commands().Close()) {
    done(ended ? WithReason(absl::FailedPreconditionError(
                                absl::StrCat("job ", id.value(), " ended before its next step boundary")),
                            "JOB_ENDED", {{"job", id.value()}})
               : WithReason(absl::UnavailableError(
                                absl::StrCat("the server drains: the command is on record and takes effect when job ",
                                             id.value(), " goes on")),
                            "SERVER_DRAINING", {{"job", id.value()}}));
  }
}

bool JobManagerImpl::MoveOn(Run& run, const absl::StatusOr<train::RunOutcome>& outcome) {
  const JobId& id = run.job.id;
  std::string written;
  bool ended = false;
  absl::MutexLock lock(&mu_);
  while (true) {
    Active& active = active_.at(id);
    Job next = Snapshot(active);
    Conclude(outcome, draining(), next);
    if (IsTerminal(next.state)) next.end_time = absl::Now();
    // On disk before the state is told, so that who follows the log until then has all of it. Under the lock: no cancel
    // can come between the line and the state it names.
    const std::string line = LastLine(next);
    const auto severity = next.state == JobState::kFailed ? telemetry::Severity::kError : telemetry::Severity::kInfo;
    if (line != written) {
      if (run.log) run.log->Write(severity, line);
      telemetry::Log(severity, absl::StrCat("job ", id.value(), ": ", line));
      written = line;
    }
    const bool requeued = next.state == JobState::kQueued;
    if (requeued) next.crashes = {0, next.progress.checkpoint_step};
    absl::Status moved = SaveEpochs(active);
    if (moved.ok()) moved = SaveGraphCache(active);
    // A queued job must not be left running on record for an epoch's sake: it would count as a crash.
    if (moved.ok() || requeued) moved = Commit(active, std::move(next));
    if (moved.ok()) {
      ended = !requeued;
      if (requeued) {
        active.live.reset();
        active.queued_since = absl::Now();
      }
      break;
    }
    telemetry::Log(telemetry::Severity::kError, absl::StrCat("end of job ", id.value(), ": ", moved.message()));
    // Not stored before the process ends: the job stays running on record, and the next start resumes it from its last
    // checkpoint to the same end.
    if (!WaitToRetry()) break;
  }
  running_ = JobId();
  metrics_.job.SetRunning(0, 0, 0);
  metrics_.job.SetLookAhead({});
  metrics_.graph_cache.SetRunning({});
  return ended;
}

void JobManagerImpl::StoreProgress(const JobId& id) {
  absl::MutexLock lock(&mu_);
  Active& active = active_.at(id);
  active.job.progress = active.live->progress();
  for (const absl::Status& stored : {SaveEpochs(active), store_->Update(active.job), SaveGraphCache(active)}) {
    // Not worth the run: a later write brings it up to date, and what training resumes from is its checkpoint.
    if (stored.ok()) continue;
    telemetry::Log(telemetry::Severity::kWarning, absl::StrCat("progress of job ", id.value(), ": ", stored.message()));
  }
}

void JobManagerImpl::RecordEpoch(const JobId& id, const train::EpochMetrics& metrics) {
  absl::MutexLock lock(&mu_);
  Active& active = active_.at(id);
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

absl::Status JobManagerImpl::SaveEpochs(Active& active) {
  for (auto& unsaved = active.unsaved_epochs; !unsaved.empty(); unsaved.pop_front()) {
    const absl::Status stored = store_->PutEpoch(active.job.id, unsaved.front());
    if (!stored.ok()) return Annotate(stored, absl::StrCat("epoch ", unsaved.front().epoch));
  }
  return absl::OkStatus();
}

bool JobManagerImpl::WaitToRetry() {
  const auto stop = [this] { return draining(); };
  return !mu_.AwaitWithTimeout(absl::Condition(&stop), kRetryInterval);
}

}  // namespace permafrost::jobs
