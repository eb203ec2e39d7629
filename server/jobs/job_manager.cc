#include "jobs/job_manager.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/string_view.h"
#include "jobs/job_log_text.h"
#include "jobs/manager_impl.h"
#include "jobs/page_token.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultPageSize = 50;
constexpr int64_t kMaxPageSize = 1000;
// Deaths of the server while a job ran, with no new checkpoint between, before the job is held to be their cause.
constexpr int32_t kMaxCrashes = 5;

std::string_view ArtifactFile(Artifact artifact) {
  switch (artifact) {
    case Artifact::kBestWeights:
      return train::kBestWeightsFile;
    case Artifact::kLastWeights:
      return train::kLastWeightsFile;
    case Artifact::kTestPredictions:
      return train::kTestPredictionsFile;
  }
  return train::kBestWeightsFile;
}

// With one more, at which the job's newest checkpoint was of `checkpoint_step`.
Crashes CountCrash(const Crashes& before, int64_t checkpoint_step) {
  if (checkpoint_step > before.checkpoint_step) return {0, checkpoint_step};
  return {before.count + 1, checkpoint_step};
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobManager>> JobManager::Open(JobManagerOptions options, data::Catalog& catalog,
                                                             train::Runner& runner, telemetry::JobMetrics& metrics,
                                                             telemetry::GraphCacheMetrics& cache_metrics) {
  const fs::path state_dir = std::move(options.state_dir);
  PF_RETURN_IF_ERROR(CreateDirectories(state_dir / "jobs"));
  PF_ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store, JobStore::Open(state_dir / "permafrost.db"));
  auto manager = std::make_unique<JobManagerImpl>(state_dir / "jobs", std::move(store), catalog, runner,
                                                  RunMetrics{metrics, cache_metrics});
  PF_RETURN_IF_ERROR(manager->Recover());
  return manager;
}

JobManagerImpl::JobManagerImpl(fs::path jobs_directory, std::unique_ptr<JobStore> store, data::Catalog& catalog,
                               train::Runner& runner, const RunMetrics& metrics)
    : files_(std::move(jobs_directory)),
      store_(std::move(store)),
      catalog_(catalog),
      runner_(runner),
      metrics_(metrics) {}

JobManagerImpl::~JobManagerImpl() {
  JobManagerImpl::Drain();
  JobManagerImpl::Join();
  std::thread thread;
  {
    absl::MutexLock lock(&mu_);
    thread = std::move(device_thread_);
  }
  if (thread.joinable()) thread.join();
}

absl::Status JobManagerImpl::Recover() {
  absl::MutexLock lock(&mu_);
  std::set<JobId> on_record;
  std::vector<JobId> unfinished;
  ListOptions page;
  page.page_size = kMaxPageSize;
  while (true) {
    PF_ASSIGN_OR_RETURN(const std::vector<Job> jobs, store_->List(page));
    if (jobs.empty()) break;
    for (const Job& job : jobs) {
      on_record.insert(job.id);
      ++counts_[static_cast<size_t>(job.state)];
      if (!IsTerminal(job.state)) unfinished.push_back(job.id);
    }
    page.before_sequence = jobs.back().sequence;
  }
  PF_RETURN_IF_ERROR(files_.RemoveStrays([&](const JobId& id) { return on_record.contains(id); }));
  for (const JobState state : {JobState::kQueued, JobState::kRunning, JobState::kCancelling, JobState::kSucceeded,
                               JobState::kFailed, JobState::kCancelled}) {
    CountJob(state, 0);
  }
  for (const JobId& id : unfinished) PF_RETURN_IF_ERROR(RecoverJob(id));
  return absl::OkStatus();
}

absl::Status JobManagerImpl::RecoverJob(const JobId& id) {
  PF_ASSIGN_OR_RETURN(Job job, store_->Get(id));
  // Not used yet: a run could not do without them.
  PF_RETURN_IF_ERROR(store_->GetCacheCommands(id).status());
  const bool began = job.start_time != absl::InfinitePast();
  const JobState was = job.state;
  Job next = job;
  // One that never began has waited since its creation; any other was queued again when its run was cut short.
  Active& active = active_[id] = Active{std::move(job), began ? absl::Now() : next.create_time, nullptr};
  if (was == JobState::kRunning) {
    next.crashes = CountCrash(next.crashes, next.progress.checkpoint_step);
    if (next.crashes.count >= kMaxCrashes) {
      next.state = JobState::kFailed;
      next.end_time = absl::Now();
      next.error = absl::StrCat("the server died ", next.crashes.count,
                                " times while this job ran, without a new checkpoint; if the system's log tells of too "
                                "little memory, submit it again with a smaller batch_size or model");
      AppendLog(id, telemetry::Severity::kError, EndedLine(next));
      return Commit(active, std::move(next));
    }
    next.state = JobState::kQueued;
    AppendLog(id, telemetry::Severity::kWarning, "interrupted: the server ended without a drain; queued again");
    return Commit(active, std::move(next));
  }
  if (was == JobState::kCancelling) {
    next.state = JobState::kCancelled;
    next.end_time = absl::Now();
    AppendLog(id, telemetry::Severity::kInfo, EndedLine(next));
    return Commit(active, std::move(next));
  }
  return absl::OkStatus();
}

void JobManagerImpl::Start() {
  absl::MutexLock lock(&mu_);
  if (device_thread_.joinable() || draining()) return;
  device_busy_ = true;
  device_thread_ = std::thread([this] { DeviceLoop(); });
}

Job JobManagerImpl::Snapshot(const Active& active) {
  Job job = active.job;
  if (active.live) job.progress = active.live->progress();
  return job;
}

absl::StatusOr<Job> JobManagerImpl::Get(const JobId& id) const {
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = active_.find(id); it != active_.end()) return Snapshot(it->second);
  }
  return store_->Get(id);
}

absl::StatusOr<JobPage> JobManagerImpl::List(int64_t page_size, const std::string& page_token,
                                             const std::vector<JobState>& states) const {
  ListOptions options;
  options.states = states;
  if (page_size < 0) {
    Violations violations;
    violations.Add("page_size", absl::StrCat(page_size, " is below 0"));
    return violations.ToStatus();
  }
  options.page_size = page_size == 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize);
  if (!page_token.empty()) {
    PF_ASSIGN_OR_RETURN(options.before_sequence, ParsePageToken(page_token, states));
  }
  JobPage page;
  PF_ASSIGN_OR_RETURN(page.jobs, store_->List(options));
  if (page.jobs.empty()) return page;
  {
    absl::MutexLock lock(&mu_);
    for (Job& job : page.jobs) {
      // Progress only: the rest of the row is what the filter chose by.
      const auto it = active_.find(job.id);
      if (it != active_.end() && it->second.live) job.progress = it->second.live->progress();
    }
  }
  options.before_sequence = page.jobs.back().sequence;
  options.page_size = 1;
  PF_ASSIGN_OR_RETURN(const std::vector<Job> more, store_->List(options));
  if (!more.empty()) page.next_page_token = MakePageToken(*options.before_sequence, states);
  return page;
}

absl::StatusOr<Job> JobManagerImpl::Cancel(const JobId& id) {
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = active_.find(id); it != active_.end()) {
      Active& active = it->second;
      Job next = Snapshot(active);
      if (next.state == JobState::kCancelling) return next;
      if (next.state == JobState::kRunning) {
        const std::shared_ptr<LiveRun> live = active.live;
        next.state = JobState::kCancelling;
        PF_RETURN_IF_ERROR(Commit(active, next));
        live->RequestCancel();
        return next;
      }
      next.state = JobState::kCancelled;
      next.end_time = absl::Now();
      AppendLog(id, telemetry::Severity::kInfo, EndedLine(next));
      PF_RETURN_IF_ERROR(Commit(active, next));
      return next;
    }
  }
  PF_ASSIGN_OR_RETURN(Job job, store_->Get(id));
  if (job.state == JobState::kCancelled) return job;
  return WithReason(absl::FailedPreconditionError(
                        absl::StrCat("job ", id.value(), " has already ", AbslView(kJobStateNames.Name(job.state)))),
                    "JOB_ENDED", {{"job", id.value()}});
}

std::unique_ptr<ChangeHub::Subscription> JobManagerImpl::Subscribe(const JobId& id, ChangeHub::Listener listener) {
  return hub_.Subscribe(id.value(), std::move(listener));
}

absl::StatusOr<LogChunk> JobManagerImpl::ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const {
  bool ended = false;
  {
    absl::MutexLock lock(&mu_);
    ended = !active_.contains(id);
  }
  if (ended) {
    PF_ASSIGN_OR_RETURN(const Job job, store_->Get(id));
    ended = IsTerminal(job.state);
  }
  // The state before the file: the last line is on disk before a terminal state is told, so nothing can follow this
  // read.
  PF_ASSIGN_OR_RETURN(JobFiles::Piece piece, files_.ReadLog(id, offset, max_bytes));
  return LogChunk{std::move(piece.data), piece.next_offset, ended && piece.at_end};
}

absl::StatusOr<fs::path> JobManagerImpl::ArtifactPath(const JobId& id, Artifact artifact) const {
  PF_RETURN_IF_ERROR(Get(id).status());
  const fs::path path = files_.Directory(id) / "artifacts" / ArtifactFile(artifact);
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  return WithReason(absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " has not made its ",
                                                               AbslView(kArtifactNames.Name(artifact)), " yet")),
                    "ARTIFACT_NOT_READY", {{"job", id.value()}});
}

absl::Status JobManagerImpl::CheckDatasetUnused(const DatasetId& id) const {
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

std::array<int64_t, 6> JobManagerImpl::CountByState() const {
  absl::MutexLock lock(&mu_);
  return counts_;
}

JobId JobManagerImpl::Drain() {
  absl::MutexLock lock(&mu_);
  draining_.store(true, std::memory_order_release);
  return running_;
}

void JobManagerImpl::Join() {
  absl::MutexLock lock(&mu_);
  const auto ended = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return !device_busy_; };
  mu_.Await(absl::Condition(&ended));
}

absl::Status JobManagerImpl::Commit(Active& active, Job next) {
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
    metrics_.job.CountFinished(kJobStateNames.Name(to));
    active_.erase(next.id);
  } else {
    active.job = std::move(next);
  }
  hub_.Notify(key);
  return absl::OkStatus();
}

void JobManagerImpl::CountJob(JobState state, int64_t change) {
  int64_t& count = counts_[static_cast<size_t>(state)];
  count += change;
  metrics_.job.SetJobs(kJobStateNames.Name(state), count);
}

void JobManagerImpl::AppendLog(const JobId& id, telemetry::Severity severity, const std::string& line) const {
  const auto log = telemetry::JobLog::Open(files_.Log(id));
  if (log.ok()) {
    (*log)->Write(severity, line);
  } else {
    telemetry::Log(telemetry::Severity::kWarning, StdView(log.status().message()));
  }
}

}  // namespace permafrost::jobs
