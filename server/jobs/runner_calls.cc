#include "jobs/runner_calls.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/device.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/monotonic.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job_inputs.h"
#include "telemetry/log.h"
#include "train/checkpoint_files.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

// Lists the steps of the checkpoints, for example "3000, 2500".
std::string StepsOf(const std::vector<train::CheckpointInfo>& checkpoints) {
  std::string steps;
  for (const train::CheckpointInfo& info : checkpoints) {
    if (info.damage.empty()) absl::StrAppend(&steps, steps.empty() ? "" : ", ", info.step);
  }
  return steps.empty() ? "none, as the job has no checkpoint" : steps;
}

absl::StatusOr<fs::path> FindCheckpointWeights(const fs::path& directory, int64_t step) {
  auto checkpoints = train::ListCheckpoints(directory, /*verify=*/false);
  if (!checkpoints.ok()) return absl::UnavailableError(checkpoints.status().message());
  for (const train::CheckpointInfo& info : *checkpoints) {
    if (info.step == step && info.damage.empty()) return train::ExportedWeightsFile(directory, step);
  }
  Violations violations;
  violations.Add("checkpoint_step",
                 absl::StrCat(step, " is the step of no complete checkpoint; accepted: ", StepsOf(*checkpoints)));
  return violations.ToStatus();
}

// Returns the checksum of the names of the nodes if the dataset is one large graph.
std::optional<uint64_t> NamesOf(const absl::StatusOr<data::OpenedDataset>& dataset) {
  if (!dataset.ok()) return std::nullopt;
  const auto* const graph = std::get_if<std::shared_ptr<const data::Graph>>(&*dataset);
  return graph == nullptr || *graph == nullptr ? std::nullopt : std::optional((*graph)->names_checksum());
}

}  // namespace

absl::StatusOr<graphcache::CachePlan> Planner::Plan(const spec::JobSpec& spec, bool measure,
                                                    const std::function<bool()>& wanted) {
  absl::StatusOr<graphcache::CachePlan> plan = TryPlan(spec, measure, wanted);
  return absl::IsCancelled(plan.status()) ? StoppedError() : std::move(plan);
}

bool Planner::KeepGoing(bool on_device, const std::function<bool()>& wanted) {
  if (on_device) device_.activity().Move();
  return !book_.draining() && wanted();
}

absl::Status Planner::StoppedError() const {
  return book_.draining() ? DrainingError() : absl::CancelledError("the caller waits for it no more");
}

absl::StatusOr<data::OpenedDataset> Planner::Open(const spec::JobSpec& spec, spec::TrainOptions& options) {
  PF_ASSIGN_OR_RETURN(options, admission_.Check(spec));
  absl::StatusOr<data::OpenedDataset> dataset = catalog_.Open(spec.train.dataset);
  if (dataset.ok()) return dataset;
  return Annotate(dataset.status(), absl::StrCat("cannot open dataset ", spec.train.dataset.value()));
}

absl::StatusOr<graphcache::Census> Planner::TakeCensus(const spec::JobSpec& spec, graphcache::TorchRelease release,
                                                       const std::function<bool()>& wanted) {
  train::CensusRequest request{.options = {}, .dataset = {}, .release = release};
  PF_ASSIGN_OR_RETURN(request.dataset, Open(spec, request.options));
  std::optional<absl::StatusOr<graphcache::Census>> census;
  const bool on_device = runner_.device() == DeviceKind::kMps;
  const auto take = [&] {
    census = runner_.TakeCensus(request, [&] { return KeepGoing(on_device, wanted); });
    return census->status();
  };
  if (on_device) {
    // On MPS, the census runs on the device, which only the device thread may use.
    if (!device_.RunNowIfIdle(take)) {
      return absl::UnavailableError(
          "the census runs steps on mps, and the device is not idle: try again when no job runs");
    }
  } else {
    take().IgnoreError();  // reported below
  }
  return absl::IsCancelled(census->status()) ? StoppedError() : *std::move(census);
}

absl::StatusOr<graphcache::CachePlan> Planner::TryPlan(const spec::JobSpec& spec, bool measure,
                                                       const std::function<bool()>& wanted) {
  train::PlanRequest request{.options = {}, .dataset = {}, .measure = measure};
  PF_ASSIGN_OR_RETURN(request.dataset, Open(spec, request.options));
  if (measure) {
    std::optional<absl::StatusOr<graphcache::CachePlan>> plan;
    const auto keep_going = [&] { return KeepGoing(/*on_device=*/true, wanted); };
    const auto make = [&] {
      plan = runner_.PlanCache(request, keep_going);
      return plan->status();
    };
    if (device_.RunNowIfIdle(make)) return *std::move(plan);
  }
  request.measure = false;
  PF_ASSIGN_OR_RETURN(graphcache::CachePlan plan,
                      runner_.PlanCache(request, [&] { return KeepGoing(/*on_device=*/false, wanted); }));
  plan.no_costs_reason = measure ? "the device is not idle: a job runs, or none is taken yet" : "it was not asked for";
  return plan;
}

absl::StatusOr<fs::path> JobEvaluator::FindWeights(const EvaluationRequest& request) const {
  if (request.checkpoint_step) {
    return FindCheckpointWeights(book_.files().Directory(request.job) / train::kCheckpointsFolder,
                                 *request.checkpoint_step);
  }
  return FindWeightsOfJob(request.job, request.weights, book_);
}

absl::StatusOr<JobEvaluation> JobEvaluator::Evaluate(
    const EvaluationRequest& request, const std::function<bool(int64_t done, int64_t total)>& on_progress) {
  if (book_.draining()) return DrainingError();
  PF_ASSIGN_OR_RETURN(const Job job, book_.Get(request.job, kNoEpochs));
  const DatasetId& trained = job.spec.train.dataset;
  const absl::StatusOr<data::Dataset> known = catalog_.Get(trained);
  const bool is_known = known.ok() && IsOfSameData(job, *known, catalog_, book_.files());
  // While a dataset is being imported, its data are unknown. The code below reports that the dataset cannot be
  // opened.
  const bool is_other = known.ok() && known->state == data::DatasetState::kReady && !is_known;
  if (request.dataset.empty() && is_other) {
    return WithReason(absl::FailedPreconditionError(
                          absl::StrCat("dataset ", trained.value(), " has other data than job ", job.id.value(),
                                       " was trained on: name it to evaluate on it as on any other dataset")),
                      "DATASET_CHANGED", {{"dataset", trained.value()}});
  }
  const bool own = (request.dataset.empty() || request.dataset == trained) && !is_other;
  JobEvaluation evaluation{.dataset = own ? trained : request.dataset,
                           .rows = own ? train::EvaluatedRows::kTest : train::EvaluatedRows::kAll,
                           .metrics = {},
                           .result = {}};
  // A graph for random walks has no splits.
  if (spec::Walks(job.spec.train)) evaluation.rows = train::EvaluatedRows::kAll;
  if (request.rows) evaluation.rows = *request.rows;
  // The links of every graph are divided into splits, so another graph has a test split too.
  if (!request.rows && job.spec.train.links.enabled) evaluation.rows = train::EvaluatedRows::kTest;
  train::EvaluateRequest pass{.options = RunnerOptions(job, book_.files()),
                              .dataset = {},
                              .trained_on = std::nullopt,
                              .other_dataset = !own,
                              .allow_unknown_categories = request.allow_unknown_categories,
                              .rows = evaluation.rows,
                              .weights = std::string(),
                              .source = absl::StrCat("jobs/", job.id.value()),
                              .predictions = request.predictions};
  if (!own) pass.options.cross_validation = {};
  if (!request.metrics.empty()) pass.options.metrics = request.metrics;
  Violations violations;
  spec::Validate(pass.options, "", violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  evaluation.metrics = spec::MetricsOf(pass.options);

  auto dataset = catalog_.Open(evaluation.dataset);
  if (!dataset.ok()) {
    return Annotate(dataset.status(), absl::StrCat("cannot open dataset ", evaluation.dataset.value()));
  }
  pass.dataset = *std::move(dataset);
  if (!own) {
    // If the training dataset is gone or was replaced, only shapes tell whether the weights fit.
    if (is_known) {
      pass.trained_on = known->summary;
      pass.trained_names = NamesOf(catalog_.Open(trained));
    }
  }
  PF_ASSIGN_OR_RETURN(const fs::path weights, FindWeights(request));
  PF_ASSIGN_OR_RETURN(pass.weights, ReadFile(weights));

  const bool on_device = runner_.device() != DeviceKind::kCpu;
  const auto keep_going = [&](int64_t done, int64_t total) {
    if (on_device) device_.activity().Move();
    return !book_.draining() && on_progress(done, total);
  };
  absl::StatusOr<train::RowsEvaluation> result = train::RowsEvaluation();
  const auto evaluate = [&] {
    result = runner_.EvaluateWeights(pass, keep_going);
    return result.status();
  };
  if (!on_device) {
    evaluate().IgnoreError();  // reported below
  } else if (!device_.RunNowIfIdle(evaluate)) {
    return absl::UnavailableError(absl::StrCat("the evaluation runs on ", AbslView(kDeviceNames.Name(runner_.device())),
                                               ", and the device is not idle: try again when no job runs"));
  }
  if (absl::IsCancelled(result.status()) && book_.draining()) return DrainingError();
  PF_RETURN_IF_ERROR(result.status());
  evaluation.result = *std::move(result);
  return evaluation;
}

namespace {

// The interval at which a rank asks whether its leader is still there.
constexpr absl::Duration kAskInterval = absl::Milliseconds(100);

// The RunContext of a rank. It stores nothing, because the leader does.
class RankContext final : public train::RunContext {
 public:
  RankContext(std::string name, const JobBook& book, DeviceActivityBoard& activity, const OnRankProgress& on_progress)
      : name_(std::move(name)), book_(book), activity_(activity), on_progress_(on_progress) {}

  const train::RankProgress& progress() const { return progress_; }
  train::StopRequest stop_requested() const override {
    if (book_.draining()) return train::StopRequest::kDrain;
    if (!gone_ && asked_.Elapsed() >= kAskInterval) {
      asked_.Restart();
      gone_ = !on_progress_(progress_);
    }
    return gone_ ? train::StopRequest::kCancel : train::StopRequest::kNone;
  }
  void OnProgress(const train::Progress& progress) override {
    activity_.Move();
    if (progress.exchange && !progress.exchange->ranks.empty()) progress_ = progress.exchange->ranks.front();
  }
  void OnGraphCache(const graphcache::Snapshot& /*snapshot*/,
                    std::shared_ptr<const std::vector<graphcache::EntryInfo>> /*entries*/) override {
    activity_.Move();
  }
  std::vector<graphcache::Command> TakeCacheCommands(int64_t /*after_sequence*/, int64_t /*step*/) override {
    return {};
  }
  void OnEpoch(const train::EpochMetrics& /*metrics*/) override {}
  absl::Status StoreEpochs(bool /*is_last*/) override { return absl::OkStatus(); }
  void OnCheckpoint(int64_t /*step*/, absl::Duration /*duration*/) override {}
  void OnCheckpointFailed(const absl::Status& /*error*/) override {}
  void Log(train::LogLevel level, std::string_view line) override {
    telemetry::Log(level == train::LogLevel::kError     ? telemetry::Severity::kError
                   : level == train::LogLevel::kWarning ? telemetry::Severity::kWarning
                                                        : telemetry::Severity::kInfo,
                   absl::StrCat(name_, ": ", AbslView(line)));
  }

 private:
  const std::string name_;
  const JobBook& book_;
  DeviceActivityBoard& activity_;
  const OnRankProgress& on_progress_;
  train::RankProgress progress_;
  // Only the device thread uses these.
  mutable Stopwatch asked_;
  mutable bool gone_ = false;
};

// Returns true if the job itself causes the error, so that its step would fail on any machine. All other errors come
// from this machine: damaged data, a failed device, or too little memory for a job that the leader found valid.
bool IsOfTheJob(const absl::Status& error) {
  return !error.ok() && !IsTransient(error) && !IsDeviceFault(error) && !absl::IsCancelled(error) &&
         !absl::IsUnavailable(error) && !absl::IsDataLoss(error) && !absl::IsResourceExhausted(error) &&
         !absl::IsInvalidArgument(error);
}

absl::Status DatasetError(const DatasetId& dataset, absl::string_view what, std::string_view reason) {
  return WithReason(absl::FailedPreconditionError(absl::StrCat("dataset ", dataset.value(), " ", what)), reason,
                    {{"dataset", dataset.value()}});
}

}  // namespace

absl::StatusOr<data::OpenedDataset> RankHost::Check(const RankRequest& request) const {
  if (book_.draining()) return DrainingError();
  const spec::TrainOptions& options = request.options;
  Violations violations;
  spec::Validate(options, "spec.", violations);
  if (request.place.rank < 1 || request.place.rank >= options.replicas) {
    violations.Add("rank", absl::StrCat(request.place.rank, ": the job has ", options.replicas,
                                        " replicas; accepted: 1 to ", options.replicas - 1));
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  absl::StatusOr<data::OpenedDataset> dataset = catalog_.Open(options.dataset);
  if (absl::IsNotFound(dataset.status())) {
    return DatasetError(options.dataset, "is not here", train::kDatasetMissingReason);
  }
  PF_RETURN_IF_ERROR(dataset.status());
  if (const std::string own = HashHex(data::ContentChecksumOf(*dataset)); own != request.dataset_checksum) {
    return DatasetError(
        options.dataset,
        absl::StrCat("holds other data here (checksum ", own, ") than on the leader (", request.dataset_checksum, ")"),
        "DATASET_DIFFERS");
  }
  // Checks the job again, because this machine may differ from the leader's. The leader has already checked the
  // number of replicas.
  spec::TrainOptions alone = options;
  alone.replicas = 1;
  // The leader sends a program when the ranks are connected. Only then is the program checked.
  if (!spec::IsProgram(options)) {
    PF_RETURN_IF_ERROR(runner_.CheckCompatible(alone, data::SummaryOf(*dataset), "spec."));
  }
  return dataset;
}

absl::Status RankHost::Run(const RankRequest& request, const OnRankProgress& on_progress) {
  // Reports a busy device before a missing dataset, so that no leader sends a dataset to a busy server.
  absl::Status busy = WithReason(absl::UnavailableError("it trains another job or rank"), kDeviceBusyReason);
  if (!book_.draining() && !device_.CanTakeGuest()) return busy;
  PF_ASSIGN_OR_RETURN(const data::OpenedDataset dataset, Check(request));
  if (request.validate_only) return absl::OkStatus();
  const std::string name =
      absl::StrCat("rank ", request.place.rank, " of job ", request.job, " of ", request.place.leader_host);
  absl::StatusOr<train::RunOutcome> outcome = train::RunOutcome();
  const auto run = [&]() -> absl::Status {
    // Tells the leader that the device has taken the rank.
    if (!on_progress({})) {
      outcome = absl::CancelledError("the leader has gone");
      return outcome.status();
    }
    telemetry::Log(telemetry::Severity::kInfo, absl::StrCat(name, ": begins"));
    RankContext context(name, book_, device_.activity(), on_progress);
    outcome = runner_.Run({.options = request.options, .dataset = dataset, .job_directory = {}, .place = request.place},
                          context);
    if (outcome.ok() && outcome->end == train::RunEnd::kSucceeded) on_progress(context.progress());
    telemetry::Log(telemetry::Severity::kInfo,
                   absl::StrCat(name, outcome.ok() ? ": ended" : ": ended by an error: ", outcome.status().message()));
    return outcome.status();
  };
  if (!device_.RunGuest(run)) return busy;
  if (IsOfTheJob(outcome.status())) {
    return WithReason(absl::FailedPreconditionError(outcome.status().message()), train::kRankFailedReason);
  }
  if (book_.draining() && outcome.ok() && outcome->end != train::RunEnd::kSucceeded) return DrainingError();
  return outcome.status();
}

}  // namespace permafrost::jobs
