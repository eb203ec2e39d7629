#include "train/loop/trainer.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "train/checkpoint_files.h"
#include "train/loop/artifacts.h"
#include "train/loop/initial_weights.h"
#include "train/loop/state_aside.h"
#include "train/tasks/categories.h"
#include "train/tasks/job_data.h"

namespace permafrost::train {
namespace {

// Interval between two reads of the loss from the device, because reading waits for the device.
constexpr absl::Duration kLossInterval = absl::Milliseconds(200);
// Interval between two reports of what the ranks exchange.
constexpr absl::Duration kTeamInterval = absl::Milliseconds(200);

// Samples are at least this far apart, so that the window holds only about fifty.
constexpr absl::Duration kMeterResolution = absl::Milliseconds(100);

double Seconds(absl::Duration duration) { return absl::ToDoubleSeconds(duration); }

void TakeCacheTotals(const graphcache::Snapshot& cache, EpochMetrics& metrics) {
  const graphcache::ModeStats& train = cache.of(Mode::kTrain);
  metrics.steps = train.hits + train.padded_hits + train.misses;
  metrics.exact_hits = train.hits;
  metrics.padded_hits = train.padded_hits;
  metrics.eager_steps = train.eager_steps;
  metrics.captures = train.captures;
  metrics.nodes = train.nodes;
  metrics.edges = train.edges;
  metrics.padding_nodes = train.padding_nodes;
  metrics.padding_edges = train.padding_edges;
  metrics.cache_bytes = train.entry_bytes + cache.of(Mode::kEval).entry_bytes + cache.shared_bytes;
}

// Returns the metadata of the weights files, for users who load a file elsewhere.
std::map<std::string, std::string> MetadataOf(const RunRequest& request, const Task& task,
                                              const std::optional<data::Categories>& categories) {
  std::map<std::string, std::string> metadata = NodeNamesMetadata(request.options, request.dataset);
  metadata["format"] = "pt";
  metadata["permafrost.model"] = task.Describe();
  if (categories) metadata.emplace(kCategoriesKey, data::CategoriesToJson(*categories));
  return metadata;
}

}  // namespace

bool IsBetter(spec::Metric metric, double value, double best) {
  if (std::isnan(best)) return true;
  if (std::isnan(value)) return false;
  return spec::TraitsOf(metric).higher_is_better ? value > best : value < best;
}

void ProgressMeter::Add(absl::Duration now, int64_t steps, int64_t graphs) {
  // The last sample is provisional: a new sample replaces it as long as it is too close to the sample before it.
  const size_t count = samples_.size();
  if (count >= 2 && samples_[count - 1].time - samples_[count - 2].time < kMeterResolution) {
    samples_.back() = {now, steps, graphs};
  } else {
    samples_.push_back({now, steps, graphs});
  }
  while (samples_.size() > 2 && now - samples_[1].time >= kWindow) samples_.pop_front();
}

double ProgressMeter::graphs_per_second() const {
  const double seconds = absl::ToDoubleSeconds(samples_.back().time - samples_.front().time);
  return seconds > 0 ? static_cast<double>(samples_.back().graphs - samples_.front().graphs) / seconds : 0;
}

absl::Duration ProgressMeter::Eta(int64_t steps_left) const {
  const int64_t steps = samples_.back().steps - samples_.front().steps;
  if (steps <= 0) return absl::ZeroDuration();
  return (samples_.back().time - samples_.front().time) *
         (static_cast<double>(steps_left) / static_cast<double>(steps));
}

absl::StatusOr<std::unique_ptr<Trainer>> Trainer::Create(const RunRequest& request, const device::Backend& backend,
                                                         int threads, RunContext& context,
                                                         const PlanContext& plan_context, Team& team,
                                                         const std::optional<Rewind>& rewind) {
  PF_ASSIGN_OR_RETURN(auto task,
                      Task::Create(
                          request.options, request.dataset, backend.device(), threads,
                          [&context] { return context.stop_requested() == StopRequest::kNone; }, plan_context));
  device::UseThreads(threads, task->torch_threads());
  if (!task->reading().empty()) context.Log(LogLevel::kInfo, task->reading());
  for (const std::string& note : task->notes()) context.Log(LogLevel::kWarning, note);
  if (const auto* graph = std::get_if<std::shared_ptr<const data::Graph>>(&request.dataset)) {
    const std::string inputs = TellNodeInputs(request.options.model, (*graph)->summary());
    if (!inputs.empty()) context.Log(LogLevel::kInfo, inputs);
  }
  PF_ASSIGN_OR_RETURN(std::optional<data::Categories> categories, data::CategoriesOf(request.dataset));
  if (categories) {
    categories = CategoriesRead(request.options, data::SummaryOf(request.dataset), *std::move(categories));
  }
  std::unique_ptr<Trainer> trainer(new Trainer(request, backend, threads, context, plan_context.reserve,
                                               std::move(task), std::move(categories), team));
  PF_RETURN_IF_ERROR(trainer->leads() ? trainer->Resume() : trainer->Begin());
  if (team.group() != nullptr) PF_RETURN_IF_ERROR(trainer->ShareState());
  if (rewind) trainer->TakeCare(*rewind);
  return trainer;
}

Trainer::Trainer(const RunRequest& request, const device::Backend& backend, int threads, RunContext& context,
                 DiskReserve reserve, std::unique_ptr<Task> task, std::optional<data::Categories> categories,
                 Team& team)
    : options_(request.options),
      job_directory_(request.job_directory),
      backend_(backend),
      reserve_(std::move(reserve)),
      store_checksum_(data::ChecksumOf(request.dataset)),
      context_(context),
      team_(team),
      group_(team.group()),
      metrics_(MetricsOf(options_)),
      task_(std::move(task)),
      categories_(std::move(categories)),
      optimizer_(options_.optimizer, task_->tensors().parameters()),
      averaged_(task_->tensors(), optimizer_),
      engine_(options_, *task_, optimizer_, backend, context, group_),
      checkpoints_(job_directory_ / kCheckpointsFolder, options_.checkpoint.keep,
                   MetadataOf(request, *task_, categories_),
                   [&context](std::string_view line) { context.Log(LogLevel::kWarning, line); }),
      best_(nn::Clone(task_->tensors().All())),
      schedule_(options_.checkpoint) {
  state_.seed = options_.seed;
  state_.threads = threads;
  state_.dataset_checksum = data::ContentChecksumOf(request.dataset);
  state_.plateau.learning_rate = options_.optimizer.learning_rate;
}

absl::StatusOr<StopRequest> Trainer::PrepareStep() {
  const int64_t last = engine_.cache().last_command();
  for (const graphcache::Command& command : context_.TakeCacheCommands(last, state_.step)) {
    PF_RETURN_IF_ERROR(engine_.Apply(command, state_.step));
    PF_ASSIGN_OR_RETURN(const StopRequest stop, WarmUp());
    // The remaining commands also have the stamp of this step, so a resumed run applies them first.
    if (stop != StopRequest::kNone) return stop;
    // The report comes now, so that the sender of the command sees its effect.
    engine_.Report(/*with_entries=*/true);
  }
  if (engine_.cache().ready()) return StopRequest::kNone;
  PF_ASSIGN_OR_RETURN(const StopRequest stop, WarmUp());
  engine_.Report(/*with_entries=*/true);
  return stop;
}

absl::StatusOr<StopRequest> Trainer::WarmUp() {
  std::optional<ParkedState> parked;
  // The optimizer's moments are parked, so that they are 0 during the warm-up, as at a job's start.
  if (state_.step > 0 && !engine_.cache().ready() && leads()) {
    absl::StatusOr<std::optional<ParkedState>> moved = ParkedState::Park(job_directory_, reserve_, optimizer_.state());
    if (!moved.ok()) {
      context_.Log(LogLevel::kWarning,
                   absl::StrCat("the warm-up copies the optimizer's state in memory, as no file takes it meanwhile: ",
                                moved.status().message()));
    } else if (moved->has_value()) {
      parked.emplace(std::move(**moved));
    }
  }
  absl::StatusOr<StopRequest> stop = CaptureAhead();
  // If Restore fails, the run's state is useless, and the newest checkpoint replaces it.
  if (parked) PF_RETURN_IF_ERROR(parked->Restore());
  return stop;
}

absl::StatusOr<StopRequest> Trainer::CaptureAhead() {
  graphcache::GraphCache& cache = engine_.cache();
  const Stopwatch warm_up;
  StopRequest stop = StopRequest::kNone;
  while (!cache.ready() && (stop = context_.stop_requested()) == StopRequest::kNone) {
    progress_.warm_up_total = progress_.warm_up_done + cache.captures_ahead();
    context_.OnProgress(progress_);
    PF_RETURN_IF_ERROR(engine_.CaptureNext(state_.step));
    ++progress_.warm_up_done;
  }
  progress_.warm_up_done = progress_.warm_up_total = 0;
  warm_up_ += warm_up.Elapsed();
  return stop;
}

absl::StatusOr<RunOutcome> Trainer::Run() {
  work_.Restart();
  warm_up_ = absl::ZeroDuration();
  Report();
  absl::StatusOr<RunOutcome> outcome = RunToEnd();
  if (outcome.ok() && outcome->end == RunEnd::kSucceeded) team_.AwaitLastReports();
  next_team_report_ = absl::ZeroDuration();
  if (outcome.ok()) Report();
  engine_.Report(/*with_entries=*/true);
  return outcome;
}

absl::StatusOr<RunOutcome> Trainer::RunToEnd() {
  RunResult result;
  StopRequest stop = StopRequest::kNone;
  while (stop == StopRequest::kNone && !IsTrained()) {
    PF_ASSIGN_OR_RETURN(stop, TrainEpoch());
    if (stop == StopRequest::kNone) {
      PF_ASSIGN_OR_RETURN(stop, FinishEpoch());
    }
  }
  if (stop == StopRequest::kNone) {
    if (state_.position.epoch < options_.epochs) {
      context_.Log(LogLevel::kInfo,
                   absl::StrFormat("ended after epoch %d of %d: none of the last %d validated better than epoch %d",
                                   state_.position.epoch, options_.epochs, options_.patience, state_.best_epoch));
    }
    PF_ASSIGN_OR_RETURN(stop, Test(result));
  }
  if (stop != StopRequest::kNone) {
    // If the checkpoint cannot be written, that is not an error: the job resumes from the previous checkpoint with
    // the same result.
    if (const absl::Status stored = saved() ? absl::OkStatus() : SaveLastCheckpoint(); !stored.ok()) {
      context_.Log(LogLevel::kWarning,
                   absl::StrFormat("no checkpoint at the stop, at step %d: %s", state_.step, stored.message()));
    }
    return RunOutcome{.end = stop == StopRequest::kCancel ? RunEnd::kCancelled : RunEnd::kDrained, .result = {}};
  }
  result.best_epoch = state_.best_epoch;
  result.best_valid_metric = state_.best_valid_metric;
  result.best_valid_metrics = state_.best_valid_metrics;
  result.train_seconds = seconds_before_ + Seconds(run_.Elapsed());
  result.mean_step_milliseconds = run_steps_ > 0 ? 1e3 * step_seconds_ / static_cast<double>(run_steps_) : 0;
  result.num_parameters = task_->tensors().num_parameter_values();
  result.unranked_valid_links = task_->unranked(data::Split::kValid);
  result.unranked_test_links = task_->unranked(data::Split::kTest);
  return RunOutcome{.end = RunEnd::kSucceeded, .result = result};
}

bool Trainer::IsTrained() const {
  const int64_t done = state_.position.epoch;
  return done >= options_.epochs ||
         (options_.patience > 0 && state_.best_epoch > 0 && done - state_.best_epoch >= options_.patience);
}

void Trainer::SetLearningRate(int64_t batches) {
  spec::OptimizerOptions options = options_.optimizer;
  const int64_t group = options.accumulate_steps, updates = (batches + group - 1) / group;
  const int64_t batch = state_.position.batch;
  if (group > 1) optimizer_.SetEndsGroup((batch + 1) % group == 0 || batch + 1 == batches);
  const bool is_plateau = options.schedule == spec::Schedule::kPlateau;
  if (is_plateau) options.learning_rate = state_.plateau.learning_rate;
  if (options.schedule == spec::Schedule::kConstant && options.warmup_steps == 0) return;
  const int64_t update = state_.position.epoch * updates + batch / group;
  optimizer_.SetLearningRate(nn::LearningRateAt(options, update, updates, options_.epochs));
}

void Trainer::TakePlateau(double value) {
  if (options_.optimizer.schedule != spec::Schedule::kPlateau) return;
  if (!TakeEpoch(options_.optimizer, metrics_.front(), value, state_.plateau)) return;
  context_.Log(
      LogLevel::kInfo,
      absl::StrFormat("the learning rate falls to %g after epoch %d: no better validation for more than %d "
                      "epochs",
                      state_.plateau.learning_rate, state_.position.epoch + 1, options_.optimizer.plateau_patience));
}

absl::StatusOr<StopRequest> Trainer::TrainEpoch() {
  const int64_t batches = task_->batches_per_epoch(), first = state_.position.batch;
  const std::unique_ptr<BatchStream> stream = task_->TrainBatches(state_.position.epoch, first);
  look_ahead_before_ = progress_.look_ahead.value_or(LookAhead());
  while (state_.position.batch < batches) {
    if (const StopRequest asked = context_.stop_requested(); asked != StopRequest::kNone) return asked;
    if (team_.can_grow() && run_steps_ > 0) {
      // The larger team should begin at a checkpoint of this step, since it would otherwise repeat steps.
      if (!saved()) PF_RETURN_IF_ERROR(SaveDueCheckpoint());
      if (saved()) return StopRequest::kDrain;
      team_.PutOffGrowth();
    }
    PF_ASSIGN_OR_RETURN(const StopRequest stop, PrepareStep());
    if (stop != StopRequest::kNone) return stop;
    // The time to capture a step differs between ranks, so all ranks meet first.
    if (group_ != nullptr && run_steps_ == 0) group_->Meet();
    const absl::Duration begin = Worked();
    PF_ASSIGN_OR_RETURN(HostBatch * host, stream->Next());
    progress_.phase_seconds.batch += Seconds(Worked() - begin);
    SetLearningRate(batches);
    const absl::Duration exchanged = ExchangeTime();
    PF_RETURN_IF_ERROR(TakeStep(*host));
    step_exchange_seconds_ += Seconds(ExchangeTime() - exchanged);
    ++state_.step;
    ++state_.position.batch;
    ++run_steps_;
    run_graphs_ += host->ids_of_all_ranks();
    const absl::Duration end = Worked();
    step_seconds_ += Seconds(end - begin);
    state_.epoch_seconds += Seconds(end - begin);
    // Only the leader reads the loss. If other ranks read it too, they would do so at different steps, and one of
    // them might end alone.
    if (leads() && end >= next_loss_read_) {
      progress_.loss = engine_.losses().Mean();
      PF_RETURN_IF_ERROR(CheckFinite(progress_.loss));
      next_loss_read_ = end + kLossInterval;
    }
    meter_.Add(end, run_steps_, run_graphs_);
    ReportLookAhead(*stream);
    engine_.Report();
    Report();
    // After an epoch's last step the evaluation comes first, so that the checkpoint includes it.
    const bool careful_ends = save_soon_ && !careful_->Watches(state_.step);
    if (state_.position.batch < batches && (careful_ends || schedule_.Due(state_.step, end))) {
      PF_RETURN_IF_ERROR(SaveDueCheckpoint());
    }
  }
  return StopRequest::kNone;
}

absl::StatusOr<StopRequest> Trainer::FinishEpoch() {
  backend_.Synchronize();
  const double train_loss = engine_.losses().Mean();
  PF_RETURN_IF_ERROR(CheckFinite(train_loss));
  PF_RETURN_IF_ERROR(CheckNotAllSkipped());
  // Rounding may differ between ranks on different kinds of processors, so the leader's weights replace all others.
  if (group_ != nullptr) ShareWeights();
  const Stopwatch evaluation;
  const absl::StatusOr<Evaluation> valid = [this] {
    const AveragedWeights::Scope averages(averaged_);
    return EvaluateSplit(data::Split::kValid, /*keep_predictions=*/false);
  }();
  if (absl::IsCancelled(valid.status())) return context_.stop_requested();
  PF_RETURN_IF_ERROR(valid.status());
  PF_RETURN_IF_ERROR(CheckValidation(*valid));

  const int64_t epoch = state_.position.epoch + 1;
  const auto graphs = static_cast<double>(task_->size(data::Split::kTrain));
  EpochMetrics metrics{.epoch = epoch,
                       .train_loss = train_loss,
                       .valid_loss = valid->loss,
                       .valid_metric = valid->metrics.front(),
                       .learning_rate = optimizer_.learning_rate(),
                       .train_seconds = state_.epoch_seconds,
                       .valid_seconds = Seconds(evaluation.Elapsed()),
                       .graphs_per_second = state_.epoch_seconds > 0 ? graphs / state_.epoch_seconds : 0,
                       .valid_metrics = valid->metrics};
  TakeCacheTotals(engine_.cache().snapshot(), metrics);
  // A metric may be finite although the predictions are not, so the loss decides.
  const bool diverged = valid->has_labels && !std::isfinite(valid->loss);
  if (!diverged && IsBetter(metrics_.front(), metrics.valid_metric, state_.best_valid_metric)) {
    nn::CopyInto(averaged_.All(), best_);
    state_.best_epoch = epoch;
    state_.best_valid_metric = metrics.valid_metric;
    state_.best_valid_metrics = valid->metrics;
  }
  TakePlateau(metrics.valid_metric);
  state_.position = {epoch, 0};
  state_.epoch_seconds = 0;
  engine_.losses().Reset();
  context_.OnEpoch(metrics);
  // The job's result and weights come from the last checkpoint, so it must be written.
  if (IsTrained()) {
    PF_RETURN_IF_ERROR(SaveLastCheckpoint());
  } else if (schedule_.Due(state_.step, Worked())) {
    PF_RETURN_IF_ERROR(SaveDueCheckpoint());
  }
  return StopRequest::kNone;
}

absl::StatusOr<StopRequest> Trainer::Test(RunResult& result) {
  const bool last_is_best = state_.best_epoch > 0 && state_.best_epoch == state_.position.epoch;
  absl::StatusOr<Evaluation> last = [&] {
    const AveragedWeights::Scope averages(averaged_);
    return EvaluateSplit(data::Split::kTest, /*keep_predictions=*/last_is_best);
  }();
  if (absl::IsCancelled(last.status())) return context_.stop_requested();
  PF_RETURN_IF_ERROR(last.status());
  result.final_test_metric = last->metrics.front();
  result.final_test_metrics = last->metrics;
  result.final_test_loss = last->loss;

  // This overwrites the last weights. They remain in the checkpoint of this step, which a stop does not write again.
  nn::CopyInto(best_, task_->tensors().All());
  // If the last weights are the best, they are tested only once.
  const absl::StatusOr<Evaluation> best =
      last_is_best ? std::move(last) : EvaluateSplit(data::Split::kTest, /*keep_predictions=*/true);
  if (absl::IsCancelled(best.status())) return context_.stop_requested();
  PF_RETURN_IF_ERROR(best.status());
  result.best_test_metric = best->metrics.front();
  result.best_test_metrics = best->metrics;
  result.best_test_loss = best->loss;
  if (best->has_labels && !std::isfinite(best->loss)) {
    context_.Log(LogLevel::kWarning, absl::StrFormat("the test loss of the best weights is %g", best->loss));
  }
  if (!leads()) return StopRequest::kNone;
  const auto name = [this](std::span<const uint32_t> ids) { return task_->NameRows(data::Split::kTest, ids); };
  PF_RETURN_IF_ERROR(WritePredictions(job_directory_, name, best->ids, best->predictions));
  return StopRequest::kNone;
}

absl::StatusOr<Evaluation> Trainer::EvaluateSplit(data::Split split, bool keep_predictions) {
  look_ahead_before_ = progress_.look_ahead.value_or(LookAhead());
  const auto report = [this](const BatchStream& stream) {
    ReportLookAhead(stream);
    Report();
  };
  return Evaluate(engine_, *task_, split,
                  {.loss = options_.loss,
                   .metrics = metrics_,
                   .step = state_.step,
                   .keep_predictions = keep_predictions,
                   .group = group_,
                   .on_batch = report},
                  [this] { return context_.stop_requested() == StopRequest::kNone; });
}

// Adds the totals of earlier streams, because each epoch and each evaluation has its own stream, whose counters begin
// at 0.
void Trainer::ReportLookAhead(const BatchStream& stream) {
  std::optional<LookAhead> now = stream.look_ahead();
  if (!now) return;
  const LookAhead& before = look_ahead_before_;
  now->sampled_edges += before.sampled_edges;
  now->stalls += before.stalls;
  now->cut_batches += before.cut_batches;
  now->pages += before.pages;
  progress_.look_ahead = now;
}

void Trainer::Report() {
  const int64_t batches = task_->batches_per_epoch();
  progress_.epoch = state_.position.epoch + (IsTrained() ? 0 : 1);
  progress_.step_in_epoch = state_.position.batch;
  progress_.steps_per_epoch = batches;
  progress_.step = state_.step;
  progress_.graphs_per_second = meter_.graphs_per_second();
  progress_.eta = meter_.Eta(batches * options_.epochs - state_.step);
  progress_.graphs = rows().graphs;
  progress_.nodes = rows().nodes;
  progress_.edges = rows().edges;
  progress_.padding_nodes = rows().padding_nodes;
  progress_.padding_edges = rows().padding_edges;
  ReportTeam();
  context_.OnProgress(progress_);
}

void Trainer::ReportTeam() {
  if (!team_.is_shared() || Worked() < next_team_report_) return;
  next_team_report_ = Worked() + kTeamInterval;
  progress_.exchange =
      team_.Report({.steps = run_steps_, .seconds = step_seconds_, .exchange_seconds = step_exchange_seconds_});
  if (leads()) team_.TellNews(progress_.exchange->ranks, context_);
}

}  // namespace permafrost::train
