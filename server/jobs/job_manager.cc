#include "jobs/job_manager.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/string_view.h"
#include "jobs/admission.h"
#include "jobs/cache_commands.h"
#include "jobs/device_thread.h"
#include "jobs/job_book.h"
#include "jobs/job_evaluator.h"
#include "jobs/job_filter.h"
#include "jobs/page_token.h"
#include "jobs/planner.h"

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

// Gives each call to whom it belongs.
class JobManagerImpl final : public JobManager {
 public:
  JobManagerImpl(std::unique_ptr<JobStore> store, JobFiles files, absl::Duration first_retry, data::Catalog& catalog,
                 train::Runner& runner, const RunMetrics& metrics)
      : book_(std::move(store), std::move(files), metrics.job, first_retry),
        admission_(book_, catalog, runner),
        commands_(book_),
        device_(book_, catalog, runner, metrics),
        planner_(book_, admission_, device_, catalog, runner),
        evaluator_(book_, device_, catalog, runner) {}
  ~JobManagerImpl() override { book_.Drain(); }

  absl::Status Recover(bool quarantine_unknown) { return book_.Recover(quarantine_unknown); }

  void Start() override { device_.Start(); }
  absl::StatusOr<Job> Create(const CreateRequest& request) override { return admission_.Create(request); }
  absl::Status Delete(const JobId& id) override { return admission_.Delete(id); }
  absl::StatusOr<Job> Get(const JobId& id) const override { return book_.Get(id, 0); }
  absl::StatusOr<Job> GetSince(const JobId& id, int64_t after_epoch) const override {
    return book_.Get(id, after_epoch);
  }
  absl::StatusOr<JobPage> List(int64_t page_size, const std::string& page_token, const JobQuery& query) const override;
  std::optional<nn::ModelLevel> LevelOf(const DatasetId& id) const override { return admission_.LevelOf(id); }
  absl::StatusOr<Job> Cancel(const JobId& id) override { return book_.Cancel(id); }
  absl::StatusOr<Job> Pause(const JobId& id) override { return book_.Pause(id); }
  absl::StatusOr<Job> Resume(const JobId& id) override { return book_.Resume(id); }
  absl::StatusOr<Job> Retry(const JobId& id) override { return admission_.Retry(id); }
  absl::StatusOr<Job> Update(const JobId& id, const JobUpdate& update) override { return book_.Update(id, update); }
  absl::StatusOr<std::vector<train::CheckpointInfo>> Checkpoints(const JobId& id, bool verify) const override;
  std::unique_ptr<ChangeHub::Subscription> Subscribe(const JobId& id, ChangeHub::Listener listener) override {
    return book_.hub().Subscribe(id.value(), std::move(listener));
  }
  absl::StatusOr<LogChunk> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const override;
  absl::StatusOr<fs::path> ArtifactPath(const JobId& id, Artifact artifact) const override;
  absl::Status CheckDatasetUnused(const DatasetId& id) const override { return book_.CheckDatasetUnused(id); }
  absl::StatusOr<graphcache::Snapshot> GetGraphCache(const JobId& id) const override { return commands_.Get(id); }
  absl::StatusOr<std::vector<graphcache::EntryInfo>> GraphCacheEntries(const JobId& id) const override {
    return commands_.Entries(id);
  }
  void CommandGraphCache(const JobId& id, const graphcache::Command& command, CommandDone done) override {
    commands_.Command(id, command, std::move(done));
  }
  absl::StatusOr<graphcache::CachePlan> PlanGraphCache(const JobSpec& spec, bool measure) override {
    return planner_.Plan(spec, measure);
  }
  absl::StatusOr<graphcache::Census> TakeGraphCacheCensus(const JobSpec& spec,
                                                          graphcache::TorchRelease release) override {
    return planner_.TakeCensus(spec, release);
  }
  absl::StatusOr<JobEvaluation> Evaluate(const EvaluationRequest& request,
                                         const std::function<bool(int64_t done, int64_t total)>& on_progress) override {
    return evaluator_.Evaluate(request, on_progress);
  }
  JobCounts CountByState() const override { return book_.CountByState(); }
  JobId Drain() override { return book_.Drain(); }
  bool draining() const override { return book_.draining(); }
  void Join() override { device_.Join(); }

 private:
  JobBook book_;
  Admission admission_;
  CacheCommands commands_;
  DeviceThread device_;  // after what its thread uses
  Planner planner_;
  JobEvaluator evaluator_;
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
  PF_RETURN_IF_ERROR(GetSince(id, std::numeric_limits<int64_t>::max()).status());
  auto found = train::ListCheckpoints(book_.files().Directory(id) / train::kCheckpointsFolder, verify);
  // The disk's error, and none of the request.
  if (!found.ok()) return absl::UnavailableError(found.status().message());
  return found;
}

absl::StatusOr<LogChunk> JobManagerImpl::ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const {
  PF_ASSIGN_OR_RETURN(const Job job, GetSince(id, std::numeric_limits<int64_t>::max()));
  const bool ended = IsTerminal(job.state);
  // The state before the file: the last line is on disk before a terminal state is told, so nothing can follow this
  // read.
  PF_ASSIGN_OR_RETURN(JobFiles::Piece piece, book_.files().ReadLog(id, offset, max_bytes));
  return LogChunk{std::move(piece.data), piece.next_offset, ended && piece.at_end};
}

absl::StatusOr<fs::path> JobManagerImpl::ArtifactPath(const JobId& id, Artifact artifact) const {
  PF_RETURN_IF_ERROR(GetSince(id, std::numeric_limits<int64_t>::max()).status());
  fs::path path = book_.files().Directory(id) / "artifacts" / ArtifactFile(artifact);
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  return WithReason(absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " has not made its ",
                                                               AbslView(kArtifactNames.Name(artifact)), " yet")),
                    "ARTIFACT_NOT_READY", {{"job", id.value()}});
}

}  // namespace

absl::StatusOr<std::unique_ptr<JobManager>> JobManager::Open(JobManagerOptions options, data::Catalog& catalog,
                                                             train::Runner& runner, telemetry::JobMetrics& metrics,
                                                             telemetry::GraphCacheMetrics& cache_metrics) {
  const fs::path state_dir = std::move(options.state_dir), directory = state_dir / "jobs";
  PF_RETURN_IF_ERROR(CreateDirectories(directory));
  PF_ASSIGN_OR_RETURN(std::unique_ptr<JobStore> store,
                      JobStore::Open(state_dir / "permafrost.db", [&metrics] { metrics.CountFailedStore(); }));
  auto manager = std::make_unique<JobManagerImpl>(std::move(store), JobFiles(directory), options.first_retry, catalog,
                                                  runner, RunMetrics{metrics, cache_metrics});
  PF_RETURN_IF_ERROR(manager->Recover(options.quarantine_unknown_jobs));
  return manager;
}

}  // namespace permafrost::jobs
