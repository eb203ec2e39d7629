#include "jobs/runner_calls.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "jobs/job_inputs.h"
#include "train/checkpoint_files.h"

namespace permafrost::jobs {
namespace {

namespace fs = std::filesystem;

// Lists the steps of the checkpoints that are there: "3000, 2500".
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

// The names of its nodes, where it is one large graph.
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
    // There it runs on the device itself, which has one thread.
    if (!device_.RunNowIfIdle(take)) {
      return absl::UnavailableError(
          "the census runs steps on mps, and the device is not idle: try again when no job runs");
    }
  } else {
    take().IgnoreError();  // told below
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
  // Nobody knows the data of a dataset that is imported just now; the code below reports that it cannot be opened.
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
  // A graph that walks are learned from has no splits.
  if (spec::Walks(job.spec.train)) evaluation.rows = train::EvaluatedRows::kAll;
  if (request.rows) evaluation.rows = *request.rows;
  // Links are divided anew in whatever graph they are of.
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
    // The dataset may be gone by now. Then only shapes tell whether the weights fit.
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
    evaluate().IgnoreError();  // told below
  } else if (!device_.RunNowIfIdle(evaluate)) {
    return absl::UnavailableError(absl::StrCat("the evaluation runs on ", AbslView(kDeviceNames.Name(runner_.device())),
                                               ", and the device is not idle: try again when no job runs"));
  }
  if (absl::IsCancelled(result.status()) && book_.draining()) return DrainingError();
  PF_RETURN_IF_ERROR(result.status());
  evaluation.result = *std::move(result);
  return evaluation;
}

}  // namespace permafrost::jobs
