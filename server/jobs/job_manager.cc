#include "jobs/job_manager.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/string_view.h"
#include "jobs/admission.h"
#include "jobs/cache_commands.h"
#include "jobs/device_thread.h"
#include "jobs/job_book.h"
#include "jobs/job_evaluator.h"
#include "jobs/job_filter.h"
#include "jobs/page_token.h"
#include "jobs/planner.h"
#include "jobs/request_log.h"
#include "jobs/retention.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kDefaultPageSize = 50;
constexpr int64_t kMaxPageSize = 1000;
// Rows that one page of a filtered list looks at: what bounds the time that a call takes.
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

RequestKey KeyOf(std::string_view call, const JobId& id, const std::string& request_id) {
  if (request_id.empty()) return {};
  return {.id = request_id, .what = absl::StrCat(AbslView(call), " ", id.value())};
}

// All that an update asks for, in few bytes.
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

// Gives each call to whom it belongs.
// The thread that does what time alone asks for: limits that pass, waits that end.
// Threads: made and destroyed by one thread.
class Caretaker {
 public:
  // Calls `work` each `every` from Start on, until it is destroyed. By a clock that nobody sets.
  Caretaker(absl::Duration every, std::function<void()> work) : every_(every), work_(std::move(work)) {}
  ~Caretaker() {
    stop_.Set();
    if (thread_.joinable()) thread_.join();
  }

  // Nothing if it was started before.
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

class JobManagerImpl final : public JobManager {
 public:
  JobManagerImpl(std::unique_ptr<JobStore> store, JobFiles files, const JobManagerOptions& options,
                 data::Catalog& catalog, train::Runner& runner, const RunMetrics& metrics)
      : book_(std::move(store), std::move(files), metrics.job,
              {.first_retry = options.first_retry,
               .preempt = options.preempt,
               .max_log_bytes = options.max_log_bytes,
               .now = options.now}),
        requests_(book_.store()),
        admission_(book_, catalog, runner, options.max_jobs, options.first_retry),
        commands_(book_),
        device_(book_, catalog, runner, metrics, options.on_device_fault),
        planner_(book_, admission_, device_, catalog, runner),
        evaluator_(book_, device_, catalog, runner),
        retention_(book_, admission_, metrics.job, options.keep_finished, options.may_expire),
        caretaker_(options.attend_every, [this] {
          book_.Attend();
          retention_.Apply();
          admission_.RemoveLeavings();
        }) {}
  ~JobManagerImpl() override { book_.Drain(); }

  absl::Status Recover(bool quarantine_unknown) { return book_.Recover(quarantine_unknown); }

  void Start() override {
    device_.Start();
    const std::lock_guard<std::mutex> lock(start_mu_);
    caretaker_.Start();
  }
  absl::StatusOr<Job> Create(const CreateRequest& request) override { return admission_.Create(request); }
  absl::StatusOr<std::optional<CreatedBefore>> FindCreated(const std::string& request_id,
                                                           const std::string& asked) const override {
    return admission_.FindCreated(request_id, asked);
  }
  absl::Status Delete(const JobId& id, const std::string& request_id) override {
    PF_RETURN_IF_ERROR(CheckRequestId(request_id));
    return admission_.Delete(id, KeyOf("delete", id, request_id));
  }
  absl::StatusOr<Job> Get(const JobId& id) const override { return book_.Get(id); }
  absl::StatusOr<Job> GetSince(const JobId& id, int64_t after_epoch) const override {
    return book_.Get(id, after_epoch);
  }
  absl::StatusOr<JobPage> List(int64_t page_size, const std::string& page_token, const JobQuery& query) const override;
  std::optional<DatasetTraits> TraitsOf(const DatasetId& id) const override { return admission_.TraitsOf(id); }
  absl::StatusOr<Job> Cancel(const JobId& id, const std::string& request_id) override {
    PF_RETURN_IF_ERROR(CheckRequestId(request_id));
    return book_.Cancel(id, KeyOf("cancel", id, request_id));
  }
  absl::StatusOr<Job> Pause(const JobId& id, const std::string& request_id) override {
    PF_RETURN_IF_ERROR(CheckRequestId(request_id));
    return book_.Pause(id, KeyOf("pause", id, request_id));
  }
  absl::StatusOr<Job> Resume(const JobId& id, const std::string& request_id) override {
    PF_RETURN_IF_ERROR(CheckRequestId(request_id));
    return book_.Resume(id, KeyOf("resume", id, request_id));
  }
  absl::StatusOr<Job> Retry(const JobId& id, const std::string& request_id) override {
    PF_RETURN_IF_ERROR(CheckRequestId(request_id));
    return admission_.Retry(id, KeyOf("retry", id, request_id));
  }
  absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update, const std::string& request_id) override {
    PF_RETURN_IF_ERROR(CheckRequestId(request_id));
    return book_.Update(id, update, KeyOf(TextOf(update), id, request_id));
  }
  absl::StatusOr<std::vector<train::CheckpointInfo>> Checkpoints(const JobId& id, bool verify) const override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const JobId& id, ChangeHub::Listener listener) override {
    return book_.hub().Subscribe(id.value(), std::move(listener));
  }
  std::unique_ptr<ChangeHub::Subscription> SubscribeLog(const JobId& id, ChangeHub::Listener listener) override {
    return book_.log_hub().Subscribe(id.value(), std::move(listener));
  }
  absl::StatusOr<LogChunk> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const override {
    return book_.ReadLog(id, offset, max_bytes);
  }
  absl::StatusOr<fs::path> ArtifactPath(const JobId& id, Artifact artifact) const override;
  absl::Status CheckDatasetUnused(const DatasetId& id) const override { return book_.CheckDatasetUnused(id); }
  absl::StatusOr<graphcache::Snapshot> GetGraphCache(const JobId& id) const override { return commands_.Get(id); }
  absl::StatusOr<std::vector<graphcache::EntryInfo>> GraphCacheEntries(const JobId& id) const override {
    return commands_.Entries(id);
  }
  void CommandGraphCache(const JobId& id, const graphcache::Command& command, const std::string& request_id,
                         CommandDone done) override {
    if (absl::Status bad = CheckRequestId(request_id); !bad.ok()) return done(bad);
    const std::string what = absl::StrCat("graph cache ", HashHex(Hash64(graphcache::ToJson(command))));
    commands_.Command(id, command, KeyOf(what, id, request_id), std::move(done));
  }
  RequestLog& requests() override { return requests_; }
  absl::StatusOr<graphcache::CachePlan> PlanGraphCache(const spec::JobSpec& spec, bool measure,
                                                       const std::function<bool()>& wanted) override {
    return planner_.Plan(spec, measure, wanted);
  }
  absl::StatusOr<graphcache::Census> TakeGraphCacheCensus(const spec::JobSpec& spec, graphcache::TorchRelease release,
                                                          const std::function<bool()>& wanted) override {
    return planner_.TakeCensus(spec, release, wanted);
  }
  absl::StatusOr<JobEvaluation> Evaluate(const EvaluationRequest& request,
                                         const std::function<bool(int64_t done, int64_t total)>& on_progress) override {
    return evaluator_.Evaluate(request, on_progress);
  }
  DeviceActivity device_activity() const override { return device_.activity().Read(); }
  JobCounts CountByState() const override { return book_.CountByState(); }
  JobId Drain() override { return book_.Drain(); }
  bool draining() const override { return book_.draining(); }
  void Join() override { device_.Join(); }

 private:
  JobBook book_;
  RequestLog requests_;
  Admission admission_;
  CacheCommands commands_;
  DeviceThread device_;  // after what its thread uses
  Planner planner_;
  JobEvaluator evaluator_;
  Retention retention_;
  std::mutex start_mu_;  // held by Start for caretaker_
  Caretaker caretaker_;  // last: it uses all of the above
};

absl::StatusOr<JobPage> JobManagerImpl::List(int64_t page_size, const std::string& page_token,
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
    PF_ASSIGN_OR_RETURN(std::vector<Job> rows, book_.List(options));
    if (rows.empty()) return page;
    for (Job& job : rows) {
      if (page.jobs.size() == wanted) break;
      options.before_sequence = job.sequence;
      if (filter.Matches(job)) page.jobs.push_back(std::move(job));
    }
  }
  options.page_size = 1;
  PF_ASSIGN_OR_RETURN(const std::vector<Job> more, book_.List(options));
  if (!more.empty()) page.next_page_token = MakePageToken(*options.before_sequence, query);
  return page;
}

absl::StatusOr<std::vector<train::CheckpointInfo>> JobManagerImpl::Checkpoints(const JobId& id, bool verify) const {
  PF_RETURN_IF_ERROR(GetSince(id, kNoEpochs).status());
  auto found = train::ListCheckpoints(book_.files().Directory(id) / train::kCheckpointsFolder, verify);
  // The disk's error, and none of the request.
  if (!found.ok()) return absl::UnavailableError(found.status().message());
  return found;
}

absl::StatusOr<fs::path> JobManagerImpl::ArtifactPath(const JobId& id, Artifact artifact) const {
  PF_RETURN_IF_ERROR(GetSince(id, kNoEpochs).status());
  fs::path path = book_.files().Directory(id) / "artifacts" / ArtifactFile(artifact);
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  return WithReason(absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " has not made its ",
                                                               AbslView(kArtifactNames.Name(artifact)), " yet")),
                    "ARTIFACT_NOT_READY", {{"job", id.value()}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobManager>> JobManager::Open(const JobManagerOptions& options, data::Catalog& catalog,
                                                             train::Runner& runner, telemetry::JobMetrics& metrics,
                                                             telemetry::GraphCacheMetrics& cache_metrics) {
  const fs::path &state_dir = options.state_dir, directory = state_dir / "jobs";
  PF_RETURN_IF_ERROR(CreateDirectories(directory));
  PF_ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store,
                      JobStore::Open(state_dir / "permafrost.db", [&metrics] { metrics.CountFailedStore(); }));
  auto manager = std::make_unique<JobManagerImpl>(std::move(store), JobFiles(directory), options, catalog, runner,
                                                  RunMetrics{metrics, cache_metrics});
  PF_RETURN_IF_ERROR(manager->Recover(options.quarantine_unknown_jobs));
  return manager;
}

}  // namespace permafrost::jobs
