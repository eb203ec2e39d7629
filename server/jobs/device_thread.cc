#include "jobs/device_thread.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/device.h"
#include "base/file.h"
#include "base/resources.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job.h"
#include "jobs/job_files.h"
#include "jobs/job_inputs.h"
#include "jobs/job_log_text.h"
#include "jobs/run_context.h"

namespace permafrost::jobs {
namespace {

// The time between tries of a store write that must not be lost, for example while the disk is full.
constexpr absl::Duration kRetryInterval = absl::Seconds(1);

// Takes a job off the device, until it goes on later. If the job was pausing, it is paused; otherwise it is queued.
void MoveAside(Job& job, std::string_view reason, const std::string& message) {
  if (job.pausing) {
    Move(job, JobState::kPaused, why::kPauseRequested);
  } else {
    Move(job, JobState::kQueued, reason, message);
  }
}

// Concludes a run that an error of the machine ended. Unless the job was being cancelled or has no retries left, it
// waits and then goes on from its checkpoint.
void ConcludeTrouble(const absl::Status& error, Job& job) {
  job.trouble.error = OneLine(error.message());
  ++job.trouble.runs;
  job.interrupted = true;
  if (job.state == JobState::kCancelling) return Move(job, JobState::kCancelled, why::kCancelRequested);
  if (GetReason(error).reason == train::kTooFewPeersReason) {
    // The job waits for peers as other jobs wait for the device. Such a wait does not count as a retry.
    job.trouble.runs = 1;
    return MoveAside(job, why::kTooFewPeers, job.trouble.error);
  }
  if (job.spec.max_retries > 0 && job.trouble.runs > job.spec.max_retries) {
    return MoveToFailed(
        job, WithReason(absl::AbortedError(absl::StrCat("errors of the machine ended ", job.trouble.runs,
                                                        " runs in a row, and max_retries is ", job.spec.max_retries,
                                                        "; the last one: ", job.trouble.error)),
                        "RETRIES_EXHAUSTED"));
  }
  MoveAside(job, why::kMachineError, job.trouble.error);
}

// Concludes a run after a device fault, which lasts until the process ends. The job goes on in the next process,
// unless the job is the likely cause.
void ConcludeFault(const absl::Status& error, const std::optional<RunMark::Content>& mark, Job& job) {
  job.trouble.error = OneLine(error.message());
  job.interrupted = true;
  job.deaths = CountDeviceFault(job.deaths, mark, BootId(), job.progress.checkpoint_step);
  if (job.state == JobState::kCancelling) return Move(job, JobState::kCancelled, why::kCancelRequested);
  if (job.deaths.count >= kMostDeaths) {
    return MoveToFailed(job,
                        WithReason(absl::AbortedError(absl::StrCat("the device or the server failed ", job.deaths.count,
                                                                   " times while this job ran, the last time ",
                                                                   PlaceText(job.deaths), ": ", job.trouble.error)),
                                   "DEVICE_FAILED_AGAIN"));
  }
  MoveAside(job, why::kDeviceFault, job.trouble.error);
}

// Concludes a run that stopped before its end because it was told to. `now` comes from the book's clock.
void ConcludeStop(const LiveRun& live, bool draining, absl::Time now, Job& job) {
  if (job.state == JobState::kCancelling) {
    // The cancel may also have come after the run had stopped for another reason.
    return Move(job, JobState::kCancelled, why::kCancelRequested);
  }
  const Limit limit = PassedLimit(job.spec.limits, job.device_time, now);
  if (limit != Limit::kNone) return MoveToFailed(job, LimitError(limit, job.spec.limits));
  const std::string after = absl::StrCat("after step ", job.progress.step);
  const JobId preempted_by = live.preempted_by();
  if (draining) {
    MoveAside(job, why::kDrained, after);
  } else if (!preempted_by.empty()) {
    MoveAside(job, why::kPreempted, absl::StrCat(after, ", by job ", preempted_by.value()));
  } else {
    MoveAside(job, why::kStopWithdrawn, after);
  }
}

// Moves the job to the state that follows from the outcome of its run. Sets state, error, result and trouble. `mark`
// is the run's RunMark. `now` comes from the book's clock.
void Conclude(const absl::StatusOr<train::RunOutcome>& outcome, const LiveRun& live, bool draining,
              const std::optional<RunMark::Content>& mark, absl::Time now, Job& job) {
  if (!outcome.ok()) {
    if (IsDeviceFault(outcome.status())) return ConcludeFault(outcome.status(), mark, job);
    if (IsTransient(outcome.status())) return ConcludeTrouble(outcome.status(), job);
    MoveToFailed(job, outcome.status());
  } else if (outcome->end == train::RunEnd::kSucceeded) {
    job.result = outcome->result;
    job.trouble = {};
    Move(job, JobState::kSucceeded, why::kFinished);
  } else if (live.stop_seen() || draining || job.pausing || job.state == JobState::kCancelling) {
    ConcludeStop(live, draining, now, job);
  } else {
    MoveToFailed(job, absl::InternalError("the run stopped before its end although nothing asked it to"));
  }
}

// Returns the log line for a job that is queued again although its run met no error.
std::string QueuedLine(const Job& job) {
  const StateChange& change = job.history.changes.back();
  if (change.reason == why::kDrained) {
    return absl::StrCat("drained ", change.message, ": queued for the server's next start");
  }
  if (change.reason == why::kPreempted) {
    return absl::StrCat("preempted ", change.message, ", which has a higher priority: queued again");
  }
  return absl::StrCat("stopped ", change.message, ": what asked it to was withdrawn; queued again");
}

std::string LastLine(const Job& job, const absl::StatusOr<train::RunOutcome>& outcome) {
  if (job.state == JobState::kPaused) {
    return absl::StrCat("paused after step ", job.progress.step, outcome.ok() ? "" : ": ", job.trouble.error);
  }
  if (job.state != JobState::kQueued) return EndedLine(job);
  return outcome.ok() ? QueuedLine(job) : absl::StrCat("queued to run again: ", job.trouble.error);
}

telemetry::Severity SeverityOf(const Job& job, const absl::StatusOr<train::RunOutcome>& outcome) {
  if (job.state == JobState::kFailed) return telemetry::Severity::kError;
  return outcome.ok() ? telemetry::Severity::kInfo : telemetry::Severity::kWarning;
}

}  // namespace

DeviceThread::DeviceThread(JobBook& book, data::Catalog& catalog, train::Runner& runner, const RunMetrics& metrics,
                           OnFault on_fault)
    : book_(book), catalog_(catalog), runner_(runner), metrics_(metrics), on_fault_(std::move(on_fault)) {
  idle_.Set();
}

DeviceThread::~DeviceThread() {
  Join();
  const std::lock_guard<std::mutex> lock(start_mu_);
  if (thread_.joinable()) thread_.join();
}

void DeviceThread::Start() {
  const std::lock_guard<std::mutex> lock(start_mu_);
  if (thread_.joinable() || book_.draining()) return;
  idle_.Reset();
  thread_ = std::thread([this] { Loop(); });
}

void DeviceThread::Join() { idle_.Wait(); }

void DeviceThread::Loop() {
  while (std::optional<StartedJob> started = TakeNext()) {
    Run run{*std::move(started), nullptr};
    const absl::StatusOr<train::RunOutcome> outcome = Execute(run);
    LookForFault(outcome.status());
    Finish(run, outcome);
  }
  activity_.Enter(DevicePhase::kIdle);
  idle_.Set();
}

void DeviceThread::LookForFault(const absl::Status& status) {
  if (faulted_ || !IsDeviceFault(status)) return;
  faulted_ = true;
  telemetry::Log(telemetry::Severity::kError, StdView(status.message()));
  book_.Drain();
  if (on_fault_) on_fault_(status);
}

std::optional<StartedJob> DeviceThread::TakeNext() {
  while (true) {
    // Resets the event before it looks for a job, so that a change after the look ends the wait.
    book_.changed().Reset();
    DoIdleWork(/*waits=*/true);
    if (book_.draining()) {
      DoIdleWork(/*waits=*/false);
      return std::nullopt;
    }
    absl::Duration wait;
    activity_.Enter(DevicePhase::kTaking);
    absl::StatusOr<std::optional<StartedJob>> next = book_.StartBest(wait);
    if (!next.ok()) {
      telemetry::Log(telemetry::Severity::kError, StdView(next.status().message()));
      WaitToRetry();
    } else if (*next) {
      DoIdleWork(/*waits=*/false);
      return *std::move(next);
    } else {
      activity_.Enter(DevicePhase::kIdle);
      book_.changed().WaitFor(wait);
    }
  }
}

bool DeviceThread::RunWhileIdle(std::function<absl::Status()> work) {
  {
    absl::MutexLock lock(&work_mu_);
    if (!waits_ || guest_ != nullptr) return false;
    work_.push_back(std::move(work));
  }
  book_.changed().Set();
  return true;
}

struct DeviceThread::Guest {
  const std::function<absl::Status()>& work;
  bool ran = false;
  absl::Notification done;
};

bool DeviceThread::RunGuest(const std::function<absl::Status()>& work) {
  Guest guest{.work = work};
  {
    absl::MutexLock lock(&work_mu_);
    if (!waits_ || guest_ != nullptr) return false;
    guest_ = &guest;
  }
  book_.changed().Set();
  guest.done.WaitForNotification();
  return guest.ran;
}

bool DeviceThread::CanTakeGuest() const {
  absl::MutexLock lock(&work_mu_);
  return waits_ && guest_ == nullptr;
}

bool DeviceThread::RunNowIfIdle(const std::function<absl::Status()>& work) {
  absl::Notification done;
  const bool idle = RunWhileIdle([&] {
    absl::Status worked = work();
    done.Notify();
    return worked;
  });
  if (idle) done.WaitForNotification();
  return idle;
}

void DeviceThread::DoIdleWork(bool waits) {
  std::vector<std::function<absl::Status()>> work;
  Guest* guest = nullptr;
  {
    absl::MutexLock lock(&work_mu_);
    waits_ = waits;
    work.swap(work_);
    guest = guest_;
  }
  for (const std::function<absl::Status()>& piece : work) {
    activity_.Enter(DevicePhase::kCall);
    LookForFault(piece());
  }
  if (guest != nullptr) {
    // If a job was taken, refuses the guest, because the job must not wait for work that may take as long as a job.
    guest->ran = waits;
    if (waits) {
      activity_.Enter(DevicePhase::kCall);
      LookForFault(guest->work());
    }
    {
      absl::MutexLock lock(&work_mu_);
      guest_ = nullptr;
    }
    guest->done.Notify();
  }
  activity_.Enter(DevicePhase::kIdle);
}

absl::StatusOr<train::RunOutcome> DeviceThread::Execute(Run& run) {
  const Job& job = run.started.job;
  const JobId& id = job.id;
  const JobFiles& files = book_.files();
  activity_.Enter(DevicePhase::kOpening, id);
  // The directory was made with the job. Makes it again, in case someone removed it by hand.
  PF_RETURN_IF_ERROR(CreateDirectories(files.Directory(id)));
  absl::StatusOr<std::unique_ptr<telemetry::JobLog>> log = book_.OpenLog(id);
  // The directory exists, so only the machine can prevent opening the log.
  if (!log.ok()) return AsTransient(log.status());
  run.log = *std::move(log);
  PF_ASSIGN_OR_RETURN(RunMark mark, RunMark::Begin(files.Mark(id)));
  const std::string started = StartedLine(job, kDeviceNames.Name(runner_.device()), runner_.threads());
  run.log->Write(telemetry::Severity::kInfo, started);
  telemetry::LogOfJob(telemetry::Severity::kInfo, id.value(), started);
  book_.Notify(id);

  const spec::TrainOptions& options = job.spec.train;
  auto dataset = catalog_.Open(options.dataset);
  if (!dataset.ok()) return Annotate(dataset.status(), absl::StrCat("cannot open dataset ", options.dataset.value()));
  activity_.Enter(DevicePhase::kPreparing, id);
  absl::StatusOr<std::unique_ptr<RunWriter>> writer =
      RunWriter::Start(absl::StrCat("progress of job ", id.value()), [this, &id] { return book_.StoreProgress(id); });
  if (!writer.ok()) return AsTransient(writer.status());
  RunHooks hooks;
  hooks.activity = &activity_;
  hooks.notify = [this, &id] { book_.Notify(id); };
  hooks.store_soon = [&writer] { (*writer)->StoreSoon(); };
  hooks.store_progress = [this, &id] { return book_.StoreProgress(id); };
  hooks.store_epochs = [this, &id] { return book_.StoreEpochs(id); };
  hooks.record_epoch = [this, &id](const train::EpochMetrics& metrics) { book_.RecordEpoch(id, metrics); };
  hooks.store_commands = [this, &id](const std::vector<graphcache::Command>& commands) {
    return book_.store().PutCacheCommands(id, commands, nullptr);
  };
  hooks.mark_step = [&mark](int64_t step) { mark.SetStep(step); };
  hooks.advance = [this, &id](JobState state) { return book_.Advance(id, state); };
  hooks.now = [clock = Stopwatch()] { return clock.Elapsed(); };
  JobRunContext context(options, job.resumes > 0, book_.drain_flag(), *run.started.live, *run.log, metrics_,
                        std::move(hooks));
  return runner_.Run({RunnerOptions(job, files), *std::move(dataset), files.Directory(id)}, context);
}

void DeviceThread::Finish(Run& run, const absl::StatusOr<train::RunOutcome>& outcome) {
  const JobId& id = run.started.job.id;
  activity_.Enter(DevicePhase::kEnding, id);
  std::string written;
  bool ended = false;
  const Trouble before = run.started.live->trouble();
  const std::optional<RunMark::Content> mark = RunMark::Read(book_.files().Mark(id));
  const absl::Time now = book_.Now();
  while (true) {
    const absl::StatusOr<Job> stored = book_.Conclude(id, [&](Job& job) {
      // Removes the error of an earlier try to store the end, because the error is over once the end is stored.
      job.trouble = before;
      const bool draining = book_.draining();
      Conclude(outcome, *run.started.live, draining, mark, now, job);
      if (!IsTerminal(job.state) && !IsDeviceFault(outcome.status())) job.deaths = {};
      // The line is on disk before the new state is visible, so that followers get the whole log.
      const std::string line = LastLine(job, outcome);
      if (line == written) return;
      if (run.log) run.log->Write(SeverityOf(job, outcome), line);
      telemetry::LogOfJob(SeverityOf(job, outcome), id.value(), line);
      written = line;
    });
    if (stored.ok()) {
      ended = IsTerminal(stored->state);
      if (!outcome.ok() && stored->state == JobState::kQueued) metrics_.job.CountRetry();
      if (stored->history.changes.back().reason == why::kPreempted) metrics_.job.CountPreemption();
      break;
    }
    telemetry::Log(telemetry::Severity::kError,
                   absl::StrCat("end of job ", id.value(), ": ", stored.status().message()));
    // Shows the error, because otherwise the job would seem to run, and nobody would learn why it does not end.
    run.started.live->SetTrouble(stored.status());
    book_.Notify(id);
    // If the end cannot be stored before the process ends, the record still says that the job is on the device. The
    // next start then resumes the job from its last checkpoint, to the same end.
    if (!WaitToRetry()) {
      book_.GiveUpRunning();
      break;
    }
  }
  metrics_.job.SetIdle();
  metrics_.job.features().Set(std::nullopt);
  metrics_.graph_cache.SetRunning(std::nullopt);
  for (const CommandLog::Done& done : run.started.live->commands().Close()) {
    done(ended ? WithReason(absl::FailedPreconditionError(
                                absl::StrCat("job ", id.value(), " ended before its next step boundary")),
                            "JOB_ENDED", {{"job", id.value()}})
               : WithReason(absl::UnavailableError(absl::StrCat(
                                "job ", id.value(),
                                " has stopped: the command is on record and takes effect when it goes on")),
                            book_.draining() ? "SERVER_DRAINING" : "JOB_WAITS", {{"job", id.value()}}));
  }
}

bool DeviceThread::WaitToRetry() {
  const Stopwatch waited;
  while (!book_.draining()) {
    activity_.Move();
    const absl::Duration left = kRetryInterval - waited.Elapsed();
    if (left <= absl::ZeroDuration()) return true;
    // Another change of the book may end the wait early. The loop then waits for the rest of the time.
    book_.changed().Reset();
    if (!book_.draining()) book_.changed().WaitFor(left);
  }
  return false;
}

}  // namespace permafrost::jobs
