#include "jobs/job_book.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job_log_text.h"

namespace permafrost::jobs {
namespace {

// A log that notifies its followers of each line.
// Threads: same as JobLog.
class FollowedLog final : public telemetry::JobLog {
 public:
  FollowedLog(std::unique_ptr<telemetry::JobLog> log, LogPieces& pieces, ChangeHub& hub, std::string key)
      : log_(std::move(log)), pieces_(pieces), hub_(hub), key_(std::move(key)) {}
  void Write(telemetry::Severity severity, std::string_view line) override {
    log_->Write(severity, line);
    pieces_.Forget();
    hub_.Notify(key_);
  }

 private:
  const std::unique_ptr<telemetry::JobLog> log_;
  LogPieces& pieces_;
  ChangeHub& hub_;
  const std::string key_;
};

}  // namespace

graphcache::Snapshot NoStepYet(const spec::JobSpec& spec) {
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
                 const BookOptions& options)
    : store_(std::move(store)), files_(std::move(files)), metrics_(metrics), options_(options) {}

Job JobBook::WithoutEpochs(const ActiveJob& active) { return Snapshot(active, kNoEpochs); }

Job JobBook::Snapshot(const ActiveJob& active, int64_t after_epoch, size_t most) {
  const Job& from = active.job;
  // Copies member by member, since a copy would include the epochs. For a long job, that copy would take most of the
  // time of its watchers.
  Job job;
  job.id = from.id;
  job.request_id = from.request_id;
  job.spec = from.spec;
  job.dataset_uid = from.dataset_uid;
  job.notes = from.notes;
  job.labels = from.labels;
  job.state = from.state;
  job.history = from.history;
  job.pausing = from.pausing;
  job.interrupted = from.interrupted;
  job.create_time = from.create_time;
  job.start_time = from.start_time;
  job.end_time = from.end_time;
  job.error = from.error;
  job.failure = from.failure;
  job.device_time = active.live ? active.live->device_time() : from.device_time;
  job.progress = active.live ? active.live->progress() : from.progress;
  job.result = from.result;
  job.resumes = from.resumes;
  job.deaths = from.deaths;
  job.trouble = active.live ? active.live->trouble() : from.trouble;
  job.sequence = from.sequence;
  const auto first = std::ranges::upper_bound(from.epochs, after_epoch, {}, &train::EpochMetrics::epoch);
  const auto count = std::min(most, static_cast<size_t>(from.epochs.end() - first));
  job.epochs.assign(first, first + static_cast<std::ptrdiff_t>(count));
  return job;
}

absl::StatusOr<Job> JobBook::Get(const JobId& id, int64_t after_epoch) const {
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = active_.find(id); it != active_.end()) return Snapshot(it->second, after_epoch, kMostEpochs);
  }
  return store_->Get(id, after_epoch);
}

absl::StatusOr<Job> JobBook::Get(const JobId& id) const {
  return GetInPieces(0, [&](int64_t after_epoch) { return Get(id, after_epoch); });
}

absl::StatusOr<Job> JobBook::WithEpochs(Job ended) const {
  absl::StatusOr<Job> stored = store_->Get(ended.id);
  if (absl::IsNotFound(stored.status())) return ended;
  PF_RETURN_IF_ERROR(stored.status());
  // If the sequences differ, another job was made under the same id.
  if (stored->sequence == ended.sequence) ended.epochs = std::move(stored->epochs);
  return ended;
}

absl::StatusOr<std::vector<Job>> JobBook::List(const ListOptions& options) const {
  PF_ASSIGN_OR_RETURN(std::vector<Job> jobs, store_->List(options));
  absl::MutexLock lock(&mu_);
  for (Job& job : jobs) {
    // Updates only these fields. All other fields stay as they were when the store selected the row.
    const auto it = active_.find(job.id);
    if (it == active_.end()) continue;
    job.trouble = it->second.live ? it->second.live->trouble() : it->second.job.trouble;
    if (!it->second.live) continue;
    job.progress = it->second.live->progress();
    job.device_time = it->second.live->device_time();
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

absl::StatusOr<JobBook::Turn> JobBook::TakeTurn(absl::Duration longest) {
  // The interval of checking whether the holder of the turn waits for another process.
  constexpr absl::Duration kLook = absl::Milliseconds(5);
  const absl::Duration patience = Patience::Left(longest);
  Stopwatch locked;
  while (true) {
    if (!Patience::IsWanted()) {
      return absl::CancelledError("the client gave the call up, or its deadline passed, before its turn: not begun");
    }
    turn_ended_.Reset();
    if (!turn_taken_.exchange(true, std::memory_order_acquire)) return Turn(*this);
    if (!store_->waits_for_lock()) {
      locked.Restart();
    } else if (locked.Elapsed() >= patience) {
      return absl::UnavailableError(
          "the database is locked by another process that writes to it (such as a sqlite3 shell), and no job can be "
          "changed: nothing was done, try again once it has ended");
    }
    turn_ended_.WaitFor(kLook);
  }
}

void JobBook::EndTurn() {
  turn_taken_.store(false, std::memory_order_release);
  turn_ended_.Set();
}

ActiveJob* JobBook::FindActive(const Turn& /*turn*/, const JobId& id) {
  absl::MutexLock lock(&mu_);
  const auto it = active_.find(id);
  return it == active_.end() ? nullptr : &it->second;
}

absl::Status JobBook::Insert(Job& job, const std::string& asked) {
  {
    PF_ASSIGN_OR_RETURN(const Turn turn, TakeTurn());
    if (draining()) return DrainingError();
    PF_RETURN_IF_ERROR(store_->Insert(job, asked));
    absl::MutexLock lock(&mu_);
    TakeUp(Job(job), {});
    CountJob(job.state, +1);
    DecidePreemption();
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

absl::StatusOr<std::optional<Job>> JobBook::Delete(const JobId& id, const RequestKey& request,
                                                   std::optional<absl::Time> ended_at) {
  absl::StatusOr<Job> job;
  {
    PF_ASSIGN_OR_RETURN(const Turn turn, TakeTurn());
    PF_ASSIGN_OR_RETURN(const bool answered, store_->IsAnswered(request));
    if (answered) return std::nullopt;
    if (const ActiveJob* const active = FindActive(turn, id)) {
      return WithReason(absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " is ",
                                                                   AbslView(kJobStateNames.Name(active->job.state)),
                                                                   "; cancel it before deleting it")),
                        "JOB_NOT_ENDED", {{"job", id.value()}});
    }
    job = store_->Get(id, kNoEpochs);
    PF_RETURN_IF_ERROR(job.status());
    if (ended_at && job->end_time != *ended_at) {
      return absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " has run again since"));
    }
    files_.MarkDeleted(id, job->sequence);
    if (absl::Status deleted = store_->Delete(id, request); !deleted.ok()) {
      files_.UnmarkDeleted(id);
      return deleted;
    }
    absl::MutexLock lock(&mu_);
    CountJob(job->state, -1);
    if (job->unreadable) metrics_.SetUnreadable(--unreadable_);
  }
  hub_.Notify(id.value());
  log_hub_.Notify(id.value());
  return std::optional<Job>(*std::move(job));
}

absl::StatusOr<Job> JobBook::Cancel(const JobId& id, const RequestKey& request) {
  PF_ASSIGN_OR_RETURN(Turn turn, TakeTurn());
  PF_ASSIGN_OR_RETURN(const bool answered, store_->IsAnswered(request));
  if (answered) {
    turn.End();
    return Get(id);
  }
  if (ActiveJob* const active = FindActive(turn, id)) {
    absl::MutexLock lock(&mu_);
    Job next = Snapshot(*active, 0);
    if (next.state == JobState::kCancelling) {
      PF_RETURN_IF_ERROR(Remember(*active, request));
      return next;
    }
    if (IsOnDevice(next.state)) {
      const std::shared_ptr<LiveRun> live = active->live;
      Move(next, JobState::kCancelling, why::kCancelRequested);
      next.pausing = false;
      PF_RETURN_IF_ERROR(Commit(*active, next, request));
      live->RequestCancel();
      return next;
    }
    Move(next, JobState::kCancelled, why::kCancelRequested);
    // If no run has ended with an error, `error` only says why the job's start could not be stored.
    if (next.trouble.runs == 0) next.trouble.error.clear();
    next.end_time = absl::Now();
    next.trouble.retry_time = absl::InfinitePast();
    AppendLog(id, telemetry::Severity::kInfo, EndedLine(next));
    PF_RETURN_IF_ERROR(Commit(*active, next, request));
    DecidePreemption();
    return next;
  }
  PF_ASSIGN_OR_RETURN(const Job ended, store_->Get(id, kNoEpochs));
  if (ended.state != JobState::kCancelled) return EndedError(ended);
  // If the job is retried after this and the call is repeated, the repeated call must not cancel the job.
  if (!request.id.empty()) PF_RETURN_IF_ERROR(store_->PutRequest(request, {}));
  turn.End();
  return WithEpochs(ended);
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

absl::Status JobBook::Commit(ActiveJob& active, Job next, const RequestKey& request) {
  const JobState from = active.job.state;
  const JobState to = next.state;
  if (!CanMove(from, to)) {
    return absl::InternalError(absl::StrCat("job ", next.id.value(), " cannot move from ",
                                            AbslView(kJobStateNames.Name(from)), " to ",
                                            AbslView(kJobStateNames.Name(to))));
  }
  PF_RETURN_IF_ERROR(Unlocked([&] { return store_->Update(next, request); }));
  CountJob(from, -1);
  CountJob(to, +1);
  const std::string key = next.id.value();
  if (IsTerminal(to)) {
    metrics_.CountFinished(kJobStateNames.Name(to));
    if (to == JobState::kFailed) metrics_.CountFailure(next.failure.reason);
    ended_.fetch_add(1, std::memory_order_acq_rel);
    active_.erase(next.id);
    log_hub_.Notify(next.id.value());  // the log is complete now
  } else {
    // Epochs may have been recorded while the store worked.
    next.epochs = std::move(active.job.epochs);
    active.job = std::move(next);
  }
  hub_.Notify(key);
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

absl::StatusOr<std::unique_ptr<telemetry::JobLog>> JobBook::OpenLog(const JobId& id) const {
  PF_ASSIGN_OR_RETURN(std::unique_ptr<telemetry::JobLog> log,
                      telemetry::JobLog::Open(files_.Log(id), metrics_, options_.max_log_bytes));
  log_pieces_.Forget();  // a piece may belong to a deleted job with this id
  return std::make_unique<FollowedLog>(std::move(log), log_pieces_, log_hub_, id.value());
}

absl::StatusOr<LogChunk> JobBook::ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const {
  // Reads the state before the file. The last line is on disk before a terminal state is visible. So if the job has
  // ended, no line can follow this read.
  bool ended = false;
  {
    const absl::MutexLock lock(&mu_);
    // A job that has not ended is in active_. Get would copy the job for each reader, which costs more than reading
    // the log.
    ended = !active_.contains(id);
  }
  if (ended) {
    PF_ASSIGN_OR_RETURN(const Job job, store_->Get(id, kNoEpochs));
    ended = IsTerminal(job.state);
  }
  PF_ASSIGN_OR_RETURN(JobFiles::Piece piece, log_pieces_.Read(id, offset, max_bytes));
  return LogChunk{std::move(piece.data), piece.next_offset, piece.at_end, ended && piece.at_end};
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
