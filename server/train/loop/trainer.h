// One run of one job: epochs of training and evaluation, checkpoints, and artifacts.
// Threads: the device thread. A trainer lives for one Run.
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

// Returns true if an epoch whose metric is `value` becomes the best epoch. `best` is the metric of the best epoch so
// far, or NaN if there is none. A NaN `value` is better than a NaN `best`, but not better than a number. So without a
// validation split, the last epoch is the best.
bool IsBetter(spec::Metric metric, double value, double best);

// Measures the throughput over the last seconds, and estimates the time that is left. It reads no clock: callers pass
// the time since the run began, which must never decrease.
// Threads: the device thread.
class ProgressMeter {
 public:
  // Samples older than this are ignored.
  static constexpr absl::Duration kWindow = absl::Seconds(5);

  ProgressMeter() { samples_.push_back({absl::ZeroDuration(), 0, 0}); }

  // Adds a sample. `steps` and `graphs` are the totals of this run so far.
  void Add(absl::Duration now, int64_t steps, int64_t graphs);
  // Returns 0 before the first sample.
  double graphs_per_second() const;
  // Estimates the time that `steps_left` steps take, evaluations included, at the mean pace of the last kWindow.
  // Returns zero before the first sample.
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
  // Builds model and optimizer, and resumes from the newest checkpoint, if there is one. `team` holds the ranks that
  // train the job together, or only this rank. All ranks start from the state of rank 0 and do the same steps. Only
  // rank 0 writes checkpoints and artifacts. `backend`, `context` and `team` outlive the trainer.
  // Errors: Cancelled if a stop was requested meanwhile; the checkpoint is then unchanged.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const RunRequest& request, const device::Backend& backend,
                                                         int threads, RunContext& context,
                                                         const PlanContext& plan_context, Team& team,
                                                         const std::optional<Rewind>& rewind = std::nullopt);
  // Trains to the end, or to a stop. If the team can grow, ends the run at a step boundary, as for a drain.
  absl::StatusOr<RunOutcome> Run();
  // Returns the steps of this run, and the steps of the whole job so far.
  int64_t run_steps() const { return run_steps_; }
  int64_t step() const { return state_.step; }
  // Set if Run ended with an error from which a new trainer can recover. The new trainer must be created with this
  // value.
  const std::optional<Rewind>& rewind() const { return rewind_; }

 private:
  Trainer(const RunRequest& request, const device::Backend& backend, int threads, RunContext& context,
          DiskReserve reserve, std::unique_ptr<Task> task, std::optional<data::Categories> categories, Team& team);

  // Returns true if every epoch is done, or if the last `patience` epochs of the job did not improve the validation
  // metric.
  bool IsTrained() const;
  // TrainEpoch, FinishEpoch and Test return the StopRequest that ended them early, or kNone if they ran to their end.
  absl::StatusOr<StopRequest> TrainEpoch();
  absl::StatusOr<StopRequest> FinishEpoch();
  absl::StatusOr<StopRequest> Test(RunResult& result);

  absl::StatusOr<RunOutcome> RunToEnd();
  // Resumes from the newest checkpoint, or begins a new run if there is none.
  // Errors: those of CheckpointStore::FindNewest. FailedPrecondition with reason DATASET_CHANGED if the dataset's
  // content has changed since the checkpoint.
  absl::Status Resume();
  // Begins a run without a checkpoint, from the initial weights that the job's options give, if any.
  absl::Status Begin();
  bool leads() const { return group_ == nullptr || group_->leads(); }
  // Gives every rank the state of rank 0. Errors: Internal if rank 0 trains another model.
  absl::Status ShareState();
  // ShareWeights gives every rank the leader's weights and optimizer state. ShareTensors gives every rank the
  // leader's values of `tensors`.
  void ShareWeights();
  void ShareTensors(const std::vector<nn::NamedTensor>& tensors);
  // Sets the learning rate of the next step, and tells the optimizer whether that step ends a group of batches.
  // `batches` is the number of batches in an epoch.
  void SetLearningRate(int64_t batches);
  void TakePlateau(double value);
  absl::Status RestoreCache(const Checkpoint& checkpoint);
  // Loads weights, moments, sums and the best weights so far from the checkpoint of the present step.
  absl::Status TakeTensors();
  // Writes a checkpoint that the run needs: at its end, or for a stop.
  absl::Status SaveLastCheckpoint() { return SaveCheckpoint(/*is_last=*/true); }
  // `is_last` has the meaning that it has in RunContext::StoreEpochs.
  absl::Status SaveCheckpoint(bool is_last);
  // Writes a checkpoint that is due. If the machine cannot write it, or can write it only by using reserved space, the
  // run goes on and tries again later. If the run stopped instead, all progress since the previous checkpoint would be
  // lost.
  absl::Status SaveDueCheckpoint();
  // Makes a checkpoint of the present state. The checkpoint shares the run's tensors.
  Checkpoint MakeCheckpoint();
  bool saved() const { return saved_ && saved_->first == state_.step && saved_->second == state_.position; }
  // Links the files of the present step's checkpoint into the artifacts.
  absl::Status PublishArtifacts();
  // Makes all steps before rewind.until_step careful (state_aside.h). Call it after Resume.
  void TakeCare(const Rewind& rewind);
  absl::Status CheckFinite(double loss);
  // Fails if every batch of the epoch that ends was skipped. If epochs have fewer than ten batches, the job's last
  // ten batches count instead, or all of its batches if it has fewer than ten.
  absl::Status CheckNotAllSkipped() const;
  // Fails if the validation loss is not finite although every weight is finite. A rewind would lead to the same loss
  // again. So a job with NonFinite::kRewind goes on instead of failing, unless this was its last epoch and the job
  // has no best epoch.
  absl::Status CheckValidation(const Evaluation& valid);
  // Fails if a weight, the optimizer's state or a sum of losses is not finite: a checkpoint must never hold such a
  // value.
  absl::Status CheckFiniteState();
  // Returns the error that ends a run with a value that is not finite. If the job is to go on with a rewind, sets
  // rewind_.
  absl::Status NotFinite(const std::string& what);
  // Runs one step. If a careful step produces a value that is not finite, undoes it; only the step counter then
  // advances. If the undone step ends a group of batches with one update, the update uses the group's other batches.
  absl::Status TakeStep(HostBatch& host);
  absl::Status TakeCarefulStep(HostBatch& host);
  absl::StatusOr<Evaluation> EvaluateSplit(data::Split split, bool keep_predictions);
  // Prepares a step: applies the graph cache commands that take effect at this boundary, and makes the captures that
  // the cache needs before the step.
  absl::StatusOr<StopRequest> PrepareStep();
  absl::StatusOr<StopRequest> WarmUp();
  // Makes the captures. WarmUp calls it after it has parked the optimizer's state.
  absl::StatusOr<StopRequest> CaptureAhead();
  // Returns the graph cache's counters of the job's training steps, which include the rows of batches.
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
  const uint64_t store_checksum_;  // data::ChecksumOf the job's dataset
  RunContext& context_;
  Team& team_;
  collective::Group* const group_;  // owned by team_; null if this rank trains alone
  const std::vector<spec::Metric> metrics_;
  const std::unique_ptr<Task> task_;
  const std::optional<data::Categories> categories_;  // categories that the model reads; nullopt if unknown
  nn::Optimizer optimizer_;
  AveragedWeights averaged_;
  StepEngine engine_;
  CheckpointStore checkpoints_;
  // Weights of the best epoch; meaningless before the first evaluation. They are allocated with the model, so that
  // the run's memory does not grow at the first evaluation.
  const std::vector<nn::NamedTensor> best_;
  RunState state_;

  // Time since this trainer was created.
  const Stopwatch run_;
  double seconds_before_ = 0;                      // train_seconds of earlier runs
  Stopwatch work_;                                 // time since Run began
  absl::Duration warm_up_ = absl::ZeroDuration();  // time of captures between steps; not counted as training
  CheckpointSchedule schedule_;
  int64_t run_steps_ = 0, run_graphs_ = 0;  // run_graphs_ counts the graphs of all ranks
  double step_seconds_ = 0, step_exchange_seconds_ = 0;
  absl::Duration next_team_report_ = absl::ZeroDuration();
  std::optional<CarefulSteps> careful_;
  bool save_soon_ = false;  // true after a skipped batch, until a checkpoint records it
  std::optional<Rewind> rewind_;
  std::optional<std::pair<int64_t, data::EpochPosition>> saved_;  // step and position of the newest checkpoint
  Progress progress_;
  LookAhead look_ahead_before_;  // totals of earlier epochs and evaluations
  ProgressMeter meter_;
  absl::Duration next_loss_read_ = absl::ZeroDuration();
};

}  // namespace permafrost::train
