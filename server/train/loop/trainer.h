// One run of one job: epochs of training and evaluation, checkpoints, artifacts.
// Threads: the device thread. Lives for one Run.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "base/resources.h"
#include "collective/group.h"
#include "data/sampling/epoch_order.h"
#include "data/store/categories.h"
#include "device/backend.h"
#include "nn/optimizer.h"
#include "train/loop/checkpoint.h"
#include "train/loop/evaluation.h"
#include "train/loop/state_aside.h"
#include "train/loop/step_engine.h"
#include "train/loop/team.h"
#include "train/runner.h"
#include "train/tasks/task.h"

namespace permafrost::train {

// True if the weights of an evaluation with the metric `value` replace those chosen by `best` (NaN: none yet). NaN
// cannot be compared and replaces only NaN: without a validation split the last epoch counts as the best.
bool IsBetter(spec::Metric metric, double value, double best);

// Tells the throughput over the last seconds and the time that is left.
// Threads: the device thread. Pure but for the times it is given: time since the run began, which never falls.
class ProgressMeter {
 public:
  // Samples older than this do not count.
  static constexpr absl::Duration kWindow = absl::Seconds(5);

  ProgressMeter() { samples_.push_back({absl::ZeroDuration(), 0, 0}); }

  // `steps` and `graphs`: totals of this run so far.
  void Add(absl::Duration now, int64_t steps, int64_t graphs);
  // 0 before the first sample.
  double graphs_per_second() const;
  // Estimates at the window's pace, evaluation included. Zero before the first sample.
  absl::Duration Eta(int64_t steps_left) const;

 private:
  struct Sample {
    absl::Duration time;
    int64_t steps, graphs;
  };
  std::deque<Sample> samples_;
};

class Trainer {
 public:
  // Builds model and optimizer and resumes from the newest checkpoint, if there is one. `backend` and `context` outlive
  // the trainer. Cancelled if a stop was asked for meanwhile; the checkpoint is as it was.
  // team: the ranks that train the job together, of which there may be one; outlives the trainer. All of them do the
  // same steps from the state that rank 0 has; it alone keeps and publishes anything.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const RunRequest& request, const device::Backend& backend,
                                                         int threads, RunContext& context,
                                                         const PlanContext& plan_context, Team& team,
                                                         const std::optional<Rewind>& rewind = std::nullopt);
  // Trains to the end, or to a stop. A team that can grow ends it as a drain does, at a step's boundary.
  absl::StatusOr<RunOutcome> Run();
  // The steps of this run, and the last one's place in the job.
  int64_t run_steps() const { return run_steps_; }
  int64_t step() const { return state_.step; }
  // Set where Run ended with an error that a new trainer gets over, which begins anew with this.
  const std::optional<Rewind>& rewind() const { return rewind_; }

 private:
  Trainer(const RunRequest& request, const device::Backend& backend, int threads, RunContext& context,
          DiskReserve reserve, std::unique_ptr<Task> task, std::optional<data::Categories> categories, Team& team);

  // Each returns the StopRequest that ended it early; kNone: it came to its end.
  // True if every epoch is done, or as many epochs without a better validation as the job's patience allows.
  bool IsTrained() const;
  absl::StatusOr<StopRequest> TrainEpoch();
  absl::StatusOr<StopRequest> FinishEpoch();
  absl::StatusOr<StopRequest> Test(RunResult& result);

  absl::StatusOr<RunOutcome> RunToEnd();
  // Errors: those of CheckpointStore::FindNewest; FailedPrecondition, reason DATASET_CHANGED, where the newest
  // checkpoint is of other data than the job's dataset holds.
  absl::Status Resume();
  // Begins a run that has no checkpoint, with the weights that the job is to begin with.
  absl::Status Begin();
  bool leads() const { return group_ == nullptr || group_->leads(); }
  // Gives every rank the state of rank 0. Errors: Internal, where it trains another model.
  absl::Status ShareState();
  // The same for the weights and the optimizer alone, and for other tensors.
  void ShareWeights();
  void ShareTensors(const std::vector<nn::NamedTensor>& tensors);
  // Tells the optimizer the place of the next step in the job: its learning rate, and whether it ends a group of
  // batches.
  void SetLearningRate(int64_t batches);
  void TakePlateau(double value);
  absl::Status RestoreCache(const Checkpoint& checkpoint);
  // Takes weights, moments and sums, and the best weights so far, from the checkpoint of this step.
  absl::Status TakeTensors();
  // Writes a checkpoint that the run cannot do without: that of its end, or of a stop.
  absl::Status SaveLastCheckpoint() { return SaveCheckpoint(/*is_last=*/true); }
  // `is_last`: as RunContext::StoreEpochs.
  absl::Status SaveCheckpoint(bool is_last);
  // Writes a checkpoint that is due. If the machine cannot take it, or not without the space that is reserved for
  // others, the run goes on, since memory holds all that the checkpoint would: stopping would lose what came after the
  // one before. The next try comes later.
  absl::Status SaveDueCheckpoint();
  // Makes a checkpoint of the run as it is now; it shares the tensors.
  Checkpoint MakeCheckpoint();
  bool saved() const { return saved_ && saved_->first == state_.step && saved_->second == state_.position; }
  // Gives the files of the present step's checkpoint their names among the artifacts.
  absl::Status PublishArtifacts();
  // After Resume: the steps that the run before took are taken with care.
  void TakeCare(const Rewind& rewind);
  absl::Status CheckFinite(double loss);
  // At an epoch's end: that not all its batches were skipped, of short epochs not the last ten or all of the job.
  absl::Status CheckNotAllSkipped() const;
  // That the loss of a split with labels is finite. Every weight is: going back would lead here again, so that a job
  // that is to go back goes on instead, unless this was its last epoch and none before validated.
  absl::Status CheckValidation(const Evaluation& valid);
  // Checks that weights and optimizer are finite: a state that is not must never take the place of a checkpoint that
  // is.
  absl::Status CheckFiniteState();
  // The error of a job that fails by it; sets rewind_ where the job is to go on all the same.
  absl::Status NotFinite(const std::string& what);
  // Runs one step. If a careful step yields a value that is not finite, it is undone: only the step counter advances.
  // If that step ends a group, the group's other batches make the update.
  absl::Status TakeStep(HostBatch& host);
  absl::Status TakeCarefulStep(HostBatch& host);
  absl::StatusOr<Evaluation> EvaluateSplit(data::Split split, bool keep_predictions);
  // Does what comes before a step: the graph cache commands that take effect at this boundary, and the captures that
  // the cache is to have ahead of the step.
  absl::StatusOr<StopRequest> PrepareStep();
  absl::StatusOr<StopRequest> WarmUp();
  // The captures alone; WarmUp has the optimizer's state out of their way.
  absl::StatusOr<StopRequest> CaptureAhead();
  // The rows of all training steps of the job.
  const graphcache::ModeStats& rows() const { return engine_.cache().of(Mode::kTrain); }
  absl::Duration Worked() const { return work_.Elapsed() - warm_up_; }
  void ReportLookAhead(const BatchStream& stream);
  void ReportTeam();
  absl::Duration ExchangeTime() const { return group_ == nullptr ? absl::ZeroDuration() : group_->traffic().time; }
  void Report();

  const spec::TrainOptions options_;
  const std::filesystem::path job_directory_;
  const device::Backend& backend_;
  const DiskReserve reserve_;
  const uint64_t store_checksum_;  // data::ChecksumOf the dataset
  RunContext& context_;
  Team& team_;
  collective::Group* const group_;  // the team's
  const std::vector<spec::Metric> metrics_;
  const std::unique_ptr<Task> task_;
  const std::optional<data::Categories> categories_;  // that the model reads; nullopt: its dataset does not tell
  nn::Optimizer optimizer_;
  AveragedWeights averaged_;
  StepEngine engine_;
  CheckpointStore checkpoints_;
  // Weights of the best epoch; meaningless before the first evaluation. They are allocated with the model, so that a
  // run's storage does not grow at its first evaluation.
  const std::vector<nn::NamedTensor> best_;
  RunState state_;

  // Counts the time of this run only.
  const Stopwatch run_;
  double seconds_before_ = 0;                      // train_seconds of earlier runs
  Stopwatch work_;                                 // since Run began: what comes before is not training
  absl::Duration warm_up_ = absl::ZeroDuration();  // nor are captures between steps
  CheckpointSchedule schedule_;
  int64_t run_steps_ = 0, run_graphs_ = 0;  // the graphs of all ranks
  double step_seconds_ = 0, step_exchange_seconds_ = 0;
  absl::Duration next_team_report_ = absl::ZeroDuration();
  std::optional<CarefulSteps> careful_;
  bool save_soon_ = false;  // a batch was skipped: what was found must not be looked for again
  std::optional<Rewind> rewind_;
  std::optional<std::pair<int64_t, data::EpochPosition>> saved_;  // step and position of the newest checkpoint
  Progress progress_;
  LookAhead look_ahead_before_;  // of earlier epochs
  ProgressMeter meter_;
  absl::Duration next_loss_read_ = absl::ZeroDuration();
};

}  // namespace permafrost::train
