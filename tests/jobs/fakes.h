// A runner that steps when the test tells it to, for use with the catalog of fake_catalog.h.
#pragma once

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/status.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"
#include "jobs/fake_catalog.h"
#include "train/runner.h"

namespace permafrost::jobs {

// Trains epochs of three steps with ten graphs each. It writes a checkpoint at each epoch's end and when it stops, to
// a file from which a later run of the job resumes. Its graph cache captures at the first step, hits at all others,
// and obeys commands.
class FakeRunner : public train::Runner {
 public:
  static constexpr int64_t kStepsPerEpoch = 3;
  using Script = std::function<absl::StatusOr<train::RunOutcome>(const train::RunRequest&, train::RunContext&)>;

  // From now on, each step boundary waits for a Permit.
  void Hold() {
    absl::MutexLock lock(&mu_);
    permits_ = 0;
  }
  void Permit(int64_t boundaries) {
    absl::MutexLock lock(&mu_);
    permits_ += boundaries;
  }
  void Release() {
    absl::MutexLock lock(&mu_);
    permits_ = kFree;
    released_ = true;
  }
  // From now on, a run does nothing by itself. Until End or Release, the test itself calls the run's context.
  void Drive() {
    script_ = [this](const train::RunRequest&, train::RunContext& context) { return Wait(context); };
  }
  // Waits for a driven run, and returns its context.
  train::RunContext& AwaitDriven() {
    absl::MutexLock lock(&mu_);
    const auto driven = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return driven_ != nullptr; };
    mu_.Await(absl::Condition(&driven));
    return *driven_;
  }
  // Ends the driven run.
  void End(absl::StatusOr<train::RunOutcome> outcome) {
    absl::MutexLock lock(&mu_);
    outcome_ = std::move(outcome);
    driven_ = nullptr;
  }
  // Called while a plan is made.
  void SetOnPlan(std::function<void()> on_plan) { on_plan_ = std::move(on_plan); }
  // Called instead of training.
  void SetScript(Script script) { script_ = std::move(script); }
  using Check = std::function<absl::Status(const spec::TrainOptions&, const data::ImportedSummary&, std::string_view)>;
  void SetCheck(Check check) { check_ = std::move(check); }
  void SetCompatible(absl::Status status) {
    check_ = [status](const auto&, const auto&, std::string_view) { return status; };
  }
  void AwaitRuns(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return runs_.size() >= count; };
    mu_.Await(absl::Condition(&enough));
  }
  // Waits until the runner is held at a step boundary without a permit.
  void AwaitHeld() {
    absl::MutexLock lock(&mu_);
    const auto held = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return waiting_ && permits_ == 0; };
    mu_.Await(absl::Condition(&held));
  }
  // Returns the ids of the jobs that were run, in order.
  std::vector<std::string> runs() const {
    absl::MutexLock lock(&mu_);
    return runs_;
  }

  // Returns the commands that took effect, in order, as "JOB SEQUENCE@STEP".
  std::vector<std::string> applied() const {
    absl::MutexLock lock(&mu_);
    return applied_;
  }

  absl::StatusOr<train::RunOutcome> Run(const train::RunRequest& request, train::RunContext& context) override {
    {
      absl::MutexLock lock(&mu_);
      runs_.push_back(request.job_directory.filename().string());
    }
    if (script_) return script_(request, context);
    return Train(request, context);
  }
  absl::Status CheckCompatible(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                               std::string_view prefix) const override {
    return check_ ? check_(options, summary, prefix) : absl::OkStatus();
  }
  // Called by CheckInitialWeights before it answers, for instance to simulate weights that take long to check.
  void OnInitialWeights(std::function<void()> hook) { on_initial_weights_ = std::move(hook); }
  // Accepts a file whose name ends with "weights".
  absl::Status CheckInitialWeights(const spec::TrainOptions&, const data::ImportedSummary&, std::string_view file,
                                   std::string_view prefix, const train::WeightsTarget& target) const override {
    weights_of_other_dataset_ = target.other_dataset;
    if (on_initial_weights_) on_initial_weights_();
    if (file.ends_with("weights")) return absl::OkStatus();
    Violations violations;
    violations.Add(std::string(prefix) + "init_from", "the weights do not fit");
    return violations.ToStatus();
  }
  // Returns whether the last weights checked were said to come from another dataset.
  bool weights_of_other_dataset() const { return weights_of_other_dataset_; }
  // Returns the last request of MapNodeRows. SetMapped sets the text that MapNodeRows puts before the weights.
  std::optional<train::NodeRowsRequest> mapped() const {
    absl::MutexLock lock(&mapped_mu_);
    return mapped_;
  }
  void SetMapped(std::string before) { map_before_ = std::move(before); }
  absl::StatusOr<std::string> MapNodeRows(train::NodeRowsRequest request, std::string_view) const override {
    absl::MutexLock lock(&mapped_mu_);
    mapped_ = request;
    return map_before_ + request.weights;
  }
  void SetFits(absl::Status status) { fits_ = std::move(status); }
  // Sets the notes that CheckFits returns for a job that fits.
  void SetNotes(std::vector<std::string> notes) { notes_ = std::move(notes); }
  absl::StatusOr<std::vector<std::string>> CheckFits(const train::PlanRequest&, std::string_view,
                                                     const std::function<bool()>& keep_going) override {
    if (!keep_going()) return absl::CancelledError("stopped");
    if (!fits_.ok()) return fits_;
    return notes_;
  }
  absl::StatusOr<graphcache::CachePlan> PlanCache(const train::PlanRequest& request,
                                                  const std::function<bool()>& keep_going) override {
    PF_RETURN_IF_ERROR(HoldPlan(request.options, keep_going));
    graphcache::CachePlan plan{.options = request.options.graph_cache};
    if (plan_) plan = *plan_;
    if (request.measure && !plan_) plan.costs = graphcache::StepCosts{.capture = 0.25};
    return plan;
  }
  // Sets the answer of EvaluateWeights, which first reports half of its rows as done.
  void SetEvaluation(train::RowsEvaluation evaluation) { evaluation_ = std::move(evaluation); }
  void SetEvaluateError(absl::Status error) { evaluate_error_ = std::move(error); }
  // Returns the last request of EvaluateWeights.
  train::EvaluateRequest evaluated() const {
    absl::MutexLock lock(&mu_);
    return evaluated_;
  }
  absl::StatusOr<train::RowsEvaluation> EvaluateWeights(
      const train::EvaluateRequest& request,
      const std::function<bool(int64_t done, int64_t total)>& on_progress) override {
    {
      absl::MutexLock lock(&mu_);
      evaluated_ = request;
    }
    if (on_plan_) on_plan_();
    PF_RETURN_IF_ERROR(evaluate_error_);
    if (evaluation_) {
      if (!on_progress(evaluation_->rows / 2, evaluation_->rows)) return absl::CancelledError("stopped");
      return *evaluation_;
    }
    if (!on_progress(10, 20)) return absl::CancelledError("stopped");
    return train::RowsEvaluation{.rows = 20, .loss = 0.5, .metrics = {0.25}, .predictions = "graph,prediction_0\n"};
  }
  absl::StatusOr<graphcache::Census> TakeCensus(const train::CensusRequest& request,
                                                const std::function<bool()>& keep_going) override {
    PF_RETURN_IF_ERROR(HoldPlan(request.options, keep_going));
    graphcache::Census census = census_;
    census.release = request.release;
    return census;
  }
  void SetPlan(graphcache::CachePlan plan) { plan_ = std::move(plan); }
  void SetCensus(graphcache::Census census) { census_ = std::move(census); }
  // While held, a plan or census goes on for as long as its caller wants it.
  void HoldPlans(bool hold) { hold_plans_ = hold; }
  // Waits until `count` plans and censuses have begun.
  void AwaitPlans(size_t count) {
    absl::MutexLock lock(&mu_);
    const auto enough = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return planned_.size() >= count; };
    mu_.Await(absl::Condition(&enough));
  }
  // Returns the options of each plan and census, in order.
  std::vector<spec::TrainOptions> planned() const {
    absl::MutexLock lock(&mu_);
    return planned_;
  }
  // Trains as Run does when there is no script.
  absl::StatusOr<train::RunOutcome> Train(const train::RunRequest& request, train::RunContext& context);
  // Accepts an archive as a program if it begins with "program".
  absl::StatusOr<spec::ProgramDescription> DescribeProgram(const std::filesystem::path& archive) const override {
    PF_ASSIGN_OR_RETURN(const std::string text, ReadFile(archive));
    if (!text.starts_with("program")) return absl::InvalidArgumentError("is no archive of torch.export");
    return spec::ProgramDescription{
        .torch_version = "2.13.0",
        .forms = {{.name = "model",
                   .inputs = {{.name = "x", .type = "float32[N, 9]"}, {.name = "num_graphs", .type = "int"}},
                   .outputs = {{.name = "add", .type = "float32[G, 1]"}},
                   .num_nodes = 2,
                   .operators = {"aten.add.Tensor", "aten.linear.default"}}},
        .tensors =
            {{.name = "lin.weight",
              .kind = spec::ProgramTensorKind::kParameter,
              .type = "float32[1, 9]",
              .trained = true,
              .persistent = true},
             {.name = "mean", .kind = spec::ProgramTensorKind::kBuffer, .type = "float32[9]", .persistent = true}},
        .num_parameters = 9};
  }
  DeviceKind device() const override { return device_; }
  void SetDevice(DeviceKind device) { device_ = device; }
  int threads() const override { return 2; }
  std::string_view torch_version() const override { return "none"; }

 private:
  static constexpr int64_t kFree = int64_t{1} << 60;

  // Returns whether there were commands.
  bool Execute(const train::RunRequest& request, train::RunContext& context, int64_t step,
               graphcache::Snapshot& cache) {
    const auto commands = context.TakeCacheCommands(cache.command_sequence, step);
    for (const graphcache::Command& command : commands) {
      cache.options = graphcache::Updated(cache.options, command.update);
      cache.frozen = command.kind == graphcache::CommandKind::kFreeze;
      cache.command_sequence = command.sequence;
      cache.command_step = step;
      absl::MutexLock lock(&mu_);
      applied_.push_back(absl::StrCat(request.job_directory.filename().string(), " ", command.sequence, "@", step));
    }
    return !commands.empty();
  }
  // Counts the step that brought the run to `step`.
  static const graphcache::Snapshot& Advance(int64_t step, graphcache::Snapshot& cache) {
    graphcache::ModeStats& train = cache.of(Mode::kTrain);
    train.misses = 1;
    train.captures = 1;
    train.entries = 1;
    train.entry_bytes = 1000;
    train.capacity = -1;
    train.hits = step - 1;
    train.nodes = 200 * step;
    train.padding_nodes = step;
    cache.shared_bytes = 5000;
    return cache;
  }
  static std::shared_ptr<const std::vector<graphcache::EntryInfo>> EntriesAt(int64_t step) {
    graphcache::EntryInfo info;
    info.shape = {201, 400, 11};
    info.hits = step - 1;
    return std::make_shared<const std::vector<graphcache::EntryInfo>>(1, info);
  }

  absl::StatusOr<train::RunOutcome> Wait(train::RunContext& context) {
    absl::MutexLock lock(&mu_);
    driven_ = &context;
    const auto over = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return outcome_.has_value() || released_; };
    mu_.Await(absl::Condition(&over));
    driven_ = nullptr;
    if (outcome_) return *std::exchange(outcome_, std::nullopt);
    const bool cancel = context.stop_requested() == train::StopRequest::kCancel;
    return train::RunOutcome{cancel ? train::RunEnd::kCancelled : train::RunEnd::kDrained, {}};
  }
  absl::Status HoldPlan(const spec::TrainOptions& options, const std::function<bool()>& keep_going) {
    {
      absl::MutexLock lock(&mu_);
      planned_.push_back(options);
    }
    if (on_plan_) on_plan_();
    while (hold_plans_ && keep_going()) absl::SleepFor(absl::Milliseconds(1));
    return keep_going() ? absl::OkStatus() : absl::CancelledError("stopped");
  }
  void TakePermit() {
    absl::MutexLock lock(&mu_);
    waiting_ = true;
    const auto permitted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return permits_ > 0; };
    mu_.Await(absl::Condition(&permitted));
    waiting_ = false;
    if (permits_ != kFree) --permits_;
  }

  mutable absl::Mutex mu_;
  std::vector<std::string> runs_ ABSL_GUARDED_BY(mu_);
  train::EvaluateRequest evaluated_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> applied_ ABSL_GUARDED_BY(mu_);
  int64_t permits_ ABSL_GUARDED_BY(mu_) = kFree;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;
  train::RunContext* driven_ ABSL_GUARDED_BY(mu_) = nullptr;
  std::optional<absl::StatusOr<train::RunOutcome>> outcome_ ABSL_GUARDED_BY(mu_);
  bool released_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<spec::TrainOptions> planned_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> hold_plans_ = false;
  std::optional<graphcache::CachePlan> plan_;
  graphcache::Census census_;
  std::optional<train::RowsEvaluation> evaluation_;
  Script script_;
  std::function<void()> on_plan_, on_initial_weights_;
  mutable std::atomic<bool> weights_of_other_dataset_{false};
  std::atomic<DeviceKind> device_ = DeviceKind::kCpu;
  Check check_;
  absl::Status fits_, evaluate_error_;
  std::string map_before_;
  mutable absl::Mutex mapped_mu_;
  mutable std::optional<train::NodeRowsRequest> mapped_ ABSL_GUARDED_BY(mapped_mu_);
  std::vector<std::string> notes_;
};

inline absl::StatusOr<train::RunOutcome> FakeRunner::Train(const train::RunRequest& request,
                                                           train::RunContext& context) {
  const std::filesystem::path checkpoint = request.job_directory / "checkpoint";
  train::Progress progress;
  progress.steps_per_epoch = kStepsPerEpoch;
  graphcache::Snapshot cache;
  cache.options = request.options.graph_cache;
  if (std::ifstream in(checkpoint); in) {
    std::string json;
    in >> progress.step >> std::ws;
    std::getline(in, json);
    PF_ASSIGN_OR_RETURN(cache, graphcache::SnapshotFromJson(json));
    progress.checkpoint_step = progress.step;
  }
  const int64_t total = request.options.epochs * kStepsPerEpoch;
  const auto save = [&](bool is_last) {
    if (const absl::Status stored = context.StoreEpochs(is_last); !stored.ok()) {
      context.OnCheckpointFailed(stored);
      return;
    }
    std::ofstream(checkpoint) << progress.step << "\n" << graphcache::ToJson(cache) << "\n";
    progress.checkpoint_step = progress.step;
    context.OnProgress(progress);
    context.OnCheckpoint(progress.step, absl::Milliseconds(1));
  };
  context.Log(train::LogLevel::kInfo, "runner begins");
  if (progress.step > 0) context.OnProgress(progress);
  while (progress.step < total) {
    TakePermit();
    if (const auto stop = context.stop_requested(); stop != train::StopRequest::kNone) {
      save(/*is_last=*/true);
      const bool cancel = stop == train::StopRequest::kCancel;
      return train::RunOutcome{cancel ? train::RunEnd::kCancelled : train::RunEnd::kDrained, {}};
    }
    const bool commanded = Execute(request, context, progress.step, cache);
    ++progress.step;
    progress.epoch = (progress.step - 1) / kStepsPerEpoch + 1;
    progress.step_in_epoch = (progress.step - 1) % kStepsPerEpoch + 1;
    progress.graphs = 10 * progress.step;
    progress.nodes = 200 * progress.step;
    progress.edges = 400 * progress.step;
    progress.padding_nodes = progress.step;
    progress.phase_seconds.forward += 0.001;
    progress.loss = 1.0 / static_cast<double>(progress.step);
    context.OnProgress(progress);
    const bool news = progress.step == 1 || progress.step == total || commanded;
    context.OnGraphCache(Advance(progress.step, cache), news ? EntriesAt(progress.step) : nullptr);
    if (progress.step_in_epoch == kStepsPerEpoch) {
      train::EpochMetrics metrics;
      metrics.epoch = progress.epoch;
      metrics.train_loss = progress.loss;
      metrics.valid_metric = 2 * progress.loss;
      context.OnEpoch(metrics);
      save(/*is_last=*/progress.step == total);
    }
  }
  std::filesystem::create_directories(request.job_directory / "artifacts");
  std::ofstream(request.job_directory / "artifacts" / train::kBestWeightsFile) << "weights";
  train::RunResult result;
  result.best_epoch = request.options.epochs;
  result.best_valid_metric = 2 * progress.loss;
  return train::RunOutcome{train::RunEnd::kSucceeded, result};
}

}  // namespace permafrost::jobs
