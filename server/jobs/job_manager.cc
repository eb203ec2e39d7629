#include "jobs/job_manager.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/admission.h"
#include "jobs/device_thread.h"
#include "jobs/job_list.h"
#include "jobs/request_log.h"
#include "jobs/retention.h"
#include "jobs/runner_calls.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;
using graphcache::EntryInfo;
using graphcache::Snapshot;

constexpr int64_t kDefaultPageSize = 50;
constexpr int64_t kMaxPageSize = 1000;
// The most rows that are examined for one page of a filtered list. This bounds the time of a call.
constexpr int64_t kMaxScannedJobs = 10'000;

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

// Makes the key of a call that has a request_id. Errors: those of CheckRequestId.
absl::StatusOr<RequestKey> KeyOf(std::string_view call, const JobId& id, const std::string& request_id) {
  PF_RETURN_IF_ERROR(CheckRequestId(request_id));
  if (request_id.empty()) return RequestKey();
  return RequestKey{.id = request_id, .what = absl::StrCat(AbslView(call), " ", id.value())};
}

// Returns a short text that identifies everything an update asks for.
std::string TextOf(const JobUpdate& update) {
  std::string text = update.etag;
  if (update.priority) absl::StrAppend(&text, " priority ", *update.priority);
  if (update.max_runtime) absl::StrAppend(&text, " max_runtime ", absl::FormatDuration(*update.max_runtime));
  if (update.deadline) absl::StrAppend(&text, " deadline ", absl::FormatTime(*update.deadline, absl::UTCTimeZone()));
  if (update.labels) {
    absl::StrAppend(&text, " labels");
    for (const auto& [key, value] : *update.labels) absl::StrAppend(&text, "\n", key, " ", value);
  }
  for (const auto& [key, value] : update.label_changes)
    absl::StrAppend(&text, "\n", key, value ? " = " : " gone", value.value_or(""));
  return absl::StrCat("update ", HashHex(Hash64(text)));
}

// Runs a thread for changes that depend only on time: limits that pass, and waits that end.
// Threads: made and destroyed by one thread.
class Caretaker {
 public:
  // Calls `work` at intervals of `every`, by a monotonic clock, from Start until it is destroyed.
  Caretaker(absl::Duration every, std::function<void()> work) : every_(every), work_(std::move(work)) {}
  ~Caretaker() {
    stop_.Set();
    if (thread_.joinable()) thread_.join();
  }

  // Starts the thread. Does nothing if it was started before.
  void Start() {
    if (thread_.joinable()) return;
    thread_ = std::thread([this] {
      while (!stop_.WaitFor(every_)) work_();
    });
  }

 private:
  const absl::Duration every_;
  const std::function<void()> work_;
  Event stop_;
  std::thread thread_;
};

// The most commands of a job, more than anyone gives by hand. They are limited because every start reads all of them.
constexpr int64_t kMaxCommands = 100'000;

// Reads the graph caches of jobs, and records commands to these caches.
// Threads: all methods are safe anywhere. Borrows the book.
class CacheCommands {
 public:
  using Done = CommandLog::Done;

  explicit CacheCommands(JobBook& book) : book_(book) {}

  // See JobManager's methods: GetGraphCache, GraphCacheEntries and CommandGraphCache.
  absl::StatusOr<graphcache::Snapshot> Get(const JobId& id) const;
  absl::StatusOr<std::vector<graphcache::EntryInfo>> Entries(const JobId& id) const;
  void Command(const JobId& id, const graphcache::Command& command, const RequestKey& request, const Done& done);

 private:
  using Answer = std::optional<absl::StatusOr<graphcache::Snapshot>>;

  // Records a command. `active` is nullptr if the job has ended. If the answer is already known, returns it.
  // Otherwise keeps `done` for later, and returns nullopt. The caller holds a turn.
  Answer Record(const JobId& id, ActiveJob* active, graphcache::Command command, const RequestKey& request,
                const Done& done);
  absl::StatusOr<graphcache::Snapshot> RecordQueued(const ActiveJob& active, graphcache::Command command,
                                                    const RequestKey& request);

  JobBook& book_;
};

absl::StatusOr<Snapshot> CacheCommands::Get(const JobId& id) const {
  if (std::optional<LiveRun::Cache> live = book_.LiveCache(id)) return std::move(live->snapshot);
  PF_ASSIGN_OR_RETURN(std::optional<Snapshot> stored, book_.store().GetGraphCache(id));
  if (stored) return *std::move(stored);
  PF_ASSIGN_OR_RETURN(const Job job, book_.store().Get(id, kNoEpochs));
  return NoStepYet(job.spec);
}

absl::StatusOr<std::vector<EntryInfo>> CacheCommands::Entries(const JobId& id) const {
  if (const std::optional<LiveRun::Cache> live = book_.LiveCache(id)) return *live->entries;
  return book_.store().GetGraphCacheEntries(id);
}

void CacheCommands::Command(const JobId& id, const graphcache::Command& command, const RequestKey& request,
                            const Done& done) {
  absl::StatusOr<JobBook::Turn> turn = book_.TakeTurn();
  if (!turn.ok()) return done(turn.status());
  const absl::StatusOr<bool> answered = book_.store().IsAnswered(request);
  Answer answer;
  if (!answered.ok()) {
    answer = answered.status();
  } else if (!*answered) {
    answer = Record(id, book_.FindActive(*turn, id), command, request, done);
  }
  // The turn ends first, because `done` may take locks and notify many callers.
  turn->End();
  if (answer) return done(*std::move(answer));
  if (answered.value_or(false)) done(Get(id));
}

CacheCommands::Answer CacheCommands::Record(const JobId& id, ActiveJob* active, graphcache::Command command,
                                            const RequestKey& request, const Done& done) {
  if (active == nullptr) {
    const absl::StatusOr<Job> job = book_.store().Get(id, kNoEpochs);
    return Answer(job.ok() ? EndedError(*job) : job.status());
  }
  CommandLog& log = *active->commands;
  const CommandLog::State state = log.state();
  if (absl::Status sensible = graphcache::Check(command, state.options); !sensible.ok()) return Answer(sensible);
  if (state.newest >= kMaxCommands) {
    return Answer(
        WithReason(absl::ResourceExhaustedError(absl::StrCat("job ", id.value(), " has had ", state.newest,
                                                             " graph cache commands; accepted: at most ", kMaxCommands,
                                                             " a job: submit another job, whose cache takes as many")),
                   "TOO_MANY_COMMANDS", {{"job", id.value()}}));
  }
  command.sequence = state.newest + 1;
  command.step.reset();
  if (!active->live) return Answer(RecordQueued(*active, command, request));
  if (absl::Status stored = book_.store().PutCacheCommands(id, {command}, nullptr, request); !stored.ok()) {
    return Answer(stored);
  }
  if (log.Append(command, done)) return std::nullopt;
  return Answer(WithReason(absl::UnavailableError(absl::StrCat(
                               "job ", id.value(),
                               " has stopped and its end could not be stored: the command is on record and takes "
                               "effect when the job goes on")),
                           "SERVER_DRAINING", {{"job", id.value()}}));
}

absl::StatusOr<Snapshot> CacheCommands::RecordQueued(const ActiveJob& active, graphcache::Command command,
                                                     const RequestKey& request) {
  const Job& job = active.job;
  CommandLog& log = *active.commands;
  // The step at which the job goes on. It is not below the step of any recorded command, since commands between a
  // checkpoint and a crash already have steps. Some commands may have met no step boundary before a drain. They take
  // effect at this step too, before the new command.
  const int64_t step = std::max(log.state().last_step, job.progress.checkpoint_step);
  std::vector<graphcache::Command> changed = log.Unstamped();
  for (graphcache::Command& earlier : changed) earlier.step = step;
  const std::vector<graphcache::Command> stamped = changed;
  command.step = step;
  changed.push_back(command);
  PF_ASSIGN_OR_RETURN(const std::optional<Snapshot> stored, book_.store().GetGraphCache(job.id));
  Snapshot snapshot = stored.value_or(NoStepYet(job.spec));
  snapshot.options = graphcache::Updated(log.state().options, command.update);
  const graphcache::PolicyUpdate& update = command.update;
  // These changes unfreeze the cache of a running job (GraphCache::UpdatePolicy).
  if (update.policy || update.freeze_at || update.shapes || update.rungs) {
    // If the freeze point is derived, it is not known before the run.
    snapshot.freeze_point = {.freeze_at = snapshot.options.freeze_at};
    snapshot.frozen = false;
    snapshot.armed = true;
  }
  snapshot.command_sequence = command.sequence;
  snapshot.command_step = step;
  PF_RETURN_IF_ERROR(book_.store().PutCacheCommands(job.id, changed, &snapshot, request));
  log.Stamp(stamped);
  log.Append(command, nullptr);
  book_.Notify(job.id);
  return snapshot;
}

}  // namespace

struct JobManager::Parts {
  Parts(JobBook& book, const JobManagerOptions& options, data::Catalog& catalog, train::Runner& runner,
        const RunMetrics& metrics)
      : requests(book.store()),
        admission(book, catalog, runner, options.programs, options.max_jobs, options.first_retry),
        caches(book),
        device(book, catalog, runner, metrics, options.on_device_fault),
        planner(book, admission, device, catalog, runner),
        evaluator(book, device, catalog, runner),
        ranks(book, device, catalog, runner),
        retention(book, admission, metrics.job, options.keep_finished, options.may_expire),
        caretaker(options.attend_every, [this, &book] {
          book.Attend();
          retention.Apply();
          admission.RemoveLeavings();
        }) {}

  RequestLog requests;
  Admission admission;
  CacheCommands caches;
  DeviceThread device;  // after the members that its thread uses
  Planner planner;
  JobEvaluator evaluator;
  RankHost ranks;
  Retention retention;
  std::mutex start_mu;  // guards caretaker in Start
  Caretaker caretaker;  // last, because it uses all of the above
};

JobManager::JobManager(std::unique_ptr<JobStore> store, JobFiles files, const JobManagerOptions& options,
                       data::Catalog& catalog, train::Runner& runner, const RunMetrics& metrics)
    : JobBook(std::move(store), std::move(files), metrics.job,
              {.first_retry = options.first_retry,
               .preempt = options.preempt,
               .max_log_bytes = options.max_log_bytes,
               .now = options.now}),
      parts_(new Parts(*this, options, catalog, runner, metrics)) {}

JobManager::~JobManager() { Drain(); }

absl::StatusOr<std::unique_ptr<JobManager>> JobManager::Open(const JobManagerOptions& options, data::Catalog& catalog,
                                                             train::Runner& runner, telemetry::JobMetrics& metrics,
                                                             telemetry::GraphCacheMetrics& cache_metrics) {
  const fs::path &state_dir = options.state_dir, directory = state_dir / "jobs";
  PF_RETURN_IF_ERROR(CreateDirectories(directory));
  PF_ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store,
                      JobStore::Open(state_dir / "permafrost.db", [&metrics] { metrics.CountFailedStore(); }));
  std::unique_ptr<JobManager> manager(new JobManager(std::move(store), JobFiles(directory), options, catalog, runner,
                                                     RunMetrics{metrics, cache_metrics}));
  PF_RETURN_IF_ERROR(manager->Recover(options.quarantine_unknown_jobs));
  return manager;
}

void JobManager::Start() {
  parts_->device.Start();
  const std::lock_guard<std::mutex> lock(parts_->start_mu);
  parts_->caretaker.Start();
}

void JobManager::Join() { parts_->device.Join(); }

DeviceActivity JobManager::device_activity() const { return parts_->device.activity().Read(); }

RequestLog& JobManager::requests() { return parts_->requests; }

absl::StatusOr<Job> JobManager::Create(const CreateRequest& request) { return parts_->admission.Create(request); }

absl::StatusOr<std::optional<CreatedBefore>> JobManager::FindCreated(const std::string& request_id,
                                                                     const std::string& asked) const {
  return parts_->admission.FindCreated(request_id, asked);
}

std::optional<DatasetTraits> JobManager::TraitsOf(const DatasetId& id) const { return parts_->admission.TraitsOf(id); }

absl::StatusOr<Job> JobManager::Cancel(const JobId& id, const std::string& request_id) {
  PF_ASSIGN_OR_RETURN(const RequestKey key, KeyOf("cancel", id, request_id));
  return JobBook::Cancel(id, key);
}

absl::StatusOr<Job> JobManager::Pause(const JobId& id, const std::string& request_id) {
  PF_ASSIGN_OR_RETURN(const RequestKey key, KeyOf("pause", id, request_id));
  return JobBook::Pause(id, key);
}

absl::StatusOr<Job> JobManager::Resume(const JobId& id, const std::string& request_id) {
  PF_ASSIGN_OR_RETURN(const RequestKey key, KeyOf("resume", id, request_id));
  return JobBook::Resume(id, key);
}

absl::StatusOr<Job> JobManager::Retry(const JobId& id, const std::string& request_id) {
  PF_ASSIGN_OR_RETURN(const RequestKey key, KeyOf("retry", id, request_id));
  return parts_->admission.Retry(id, key);
}

absl::StatusOr<Job> JobManager::Update(const JobId& id, const JobUpdate& update, const std::string& request_id) {
  PF_ASSIGN_OR_RETURN(const RequestKey key, KeyOf(TextOf(update), id, request_id));
  return JobBook::Update(id, update, key);
}

absl::Status JobManager::Delete(const JobId& id, const std::string& request_id) {
  PF_ASSIGN_OR_RETURN(const RequestKey key, KeyOf("delete", id, request_id));
  return parts_->admission.Delete(id, key);
}

absl::StatusOr<graphcache::Snapshot> JobManager::GetGraphCache(const JobId& id) const { return parts_->caches.Get(id); }

absl::StatusOr<std::vector<graphcache::EntryInfo>> JobManager::GraphCacheEntries(const JobId& id) const {
  return parts_->caches.Entries(id);
}

void JobManager::CommandGraphCache(const JobId& id, const graphcache::Command& command, const std::string& request_id,
                                   const CommandLog::Done& done) {
  const std::string what = absl::StrCat("graph cache ", HashHex(Hash64(graphcache::ToJson(command))));
  const absl::StatusOr<RequestKey> key = KeyOf(what, id, request_id);
  if (!key.ok()) return done(key.status());
  parts_->caches.Command(id, command, *key, done);
}

absl::StatusOr<graphcache::CachePlan> JobManager::PlanGraphCache(const spec::JobSpec& spec, bool measure,
                                                                 const std::function<bool()>& wanted) {
  return parts_->planner.Plan(spec, measure, wanted);
}

absl::StatusOr<graphcache::Census> JobManager::TakeGraphCacheCensus(const spec::JobSpec& spec,
                                                                    graphcache::TorchRelease release,
                                                                    const std::function<bool()>& wanted) {
  return parts_->planner.TakeCensus(spec, release, wanted);
}

absl::StatusOr<JobEvaluation> JobManager::Evaluate(
    const EvaluationRequest& request, const std::function<bool(int64_t done, int64_t total)>& on_progress) {
  return parts_->evaluator.Evaluate(request, on_progress);
}

absl::Status JobManager::RunRank(const RankRequest& request, const OnRankProgress& on_progress) {
  return parts_->ranks.Run(request, on_progress);
}

absl::StatusOr<JobPage> JobManager::List(int64_t page_size, const std::string& page_token,
                                         const JobQuery& query) const {
  ListOptions options;
  options.states = query.states;
  if (page_size < 0) {
    Violations violations;
    violations.Add("page_size", absl::StrCat(page_size, " is below 0"));
    return violations.ToStatus();
  }
  PF_ASSIGN_OR_RETURN(const JobFilter filter, JobFilter::Parse(query.filter));
  if (!page_token.empty()) {
    PF_ASSIGN_OR_RETURN(options.before_sequence, ParsePageToken(page_token, query));
  }
  const auto wanted = static_cast<size_t>(page_size == 0 ? kDefaultPageSize : std::min(page_size, kMaxPageSize));
  options.page_size = filter.takes_all() ? static_cast<int64_t>(wanted) : kMaxPageSize;
  JobPage page;
  for (int64_t scanned = 0; scanned < kMaxScannedJobs && page.jobs.size() < wanted; scanned += options.page_size) {
    PF_ASSIGN_OR_RETURN(std::vector<Job> rows, JobBook::List(options));
    if (rows.empty()) return page;
    for (Job& job : rows) {
      if (page.jobs.size() == wanted) break;
      options.before_sequence = job.sequence;
      if (filter.Matches(job)) page.jobs.push_back(std::move(job));
    }
  }
  options.page_size = 1;
  PF_ASSIGN_OR_RETURN(const std::vector<Job> more, JobBook::List(options));
  if (!more.empty()) page.next_page_token = MakePageToken(*options.before_sequence, query);
  return page;
}

absl::StatusOr<std::vector<train::CheckpointInfo>> JobManager::Checkpoints(const JobId& id, bool verify) const {
  PF_RETURN_IF_ERROR(Get(id, kNoEpochs).status());
  auto found = train::ListCheckpoints(files().Directory(id) / train::kCheckpointsFolder, verify);
  // The disk is at fault, not the request.
  if (!found.ok()) return absl::UnavailableError(found.status().message());
  return found;
}

absl::StatusOr<fs::path> JobManager::ArtifactPath(const JobId& id, Artifact artifact) const {
  PF_RETURN_IF_ERROR(Get(id, kNoEpochs).status());
  fs::path path = files().Directory(id) / "artifacts" / ArtifactFile(artifact);
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  return WithReason(absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " has not made its ",
                                                               AbslView(kArtifactNames.Name(artifact)), " yet")),
                    "ARTIFACT_NOT_READY", {{"job", id.value()}});
}

}  // namespace permafrost::jobs
