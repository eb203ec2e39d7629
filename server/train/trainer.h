// One run of one job: epochs of training and evaluation, checkpoints, artifacts.
// Threads: the device thread. Lives for one Run.
#pragma once

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/sampling/epoch_order.h"
#include "device/backend.h"
#include "nn/optimizer.h"
#include "train/checkpoint.h"
#include "train/evaluator.h"
#include "train/progress_meter.h"
#include "train/runner.h"
#include "train/step_engine.h"
#include "train/task.h"

namespace permafrost::train {

class Trainer {
 public:
  // Builds model and optimizer and resumes from the newest checkpoint, if there is one. `backend` and `context` outlive
  // the trainer. Cancelled if a stop was asked for meanwhile; the checkpoint is as it was.
  static absl::StatusOr<std::unique_ptr<Trainer>> Create(const RunRequest& request, const device::Backend& backend,
                                                         int threads, RunContext& context);
  absl::StatusOr<RunOutcome> Run();

 private:
  Trainer(const RunRequest& request, const device::Backend& backend, int threads, RunContext& context,
          std::unique_ptr<Task> task);

  // Each returns a StopRequest that ended it early, or kNone.
  absl::StatusOr<StopRequest> TrainEpoch();
  absl::StatusOr<StopRequest> FinishEpoch();
  absl::StatusOr<StopRequest> Test(RunResult& result);

  absl::StatusOr<RunOutcome> RunToEnd();
  absl::Status Resume();
  absl::Status RestoreCache(const Checkpoint& checkpoint);
  absl::Status SaveCheckpoint();
  // Gives the files of the present step's checkpoint their names among the artifacts.
  absl::Status PublishArtifacts();
  absl::Status CheckFinite(double loss) const;
  // Whether the metric of an evaluation is better than that of the best epoch so far.
  bool IsBest(double metric) const;
  absl::StatusOr<Evaluation> EvaluateSplit(data::Split split, bool keep_predictions);
  // Applies what clients told the cache since the last step boundary.
  absl::Status ObeyCommands();
  // The rows of all training steps of the job.
  const graphcache::ModeStats& rows() const { return engine_.cache().of(Mode::kTrain); }
  void TellLookAhead(const BatchStream& stream);
  void Tell();

  const TrainOptions options_;
  const std::filesystem::path job_directory_;
  const device::Backend& backend_;
  RunContext& context_;
  const nn::Metric metric_;
  const std::unique_ptr<Task> task_;
  nn::Optimizer optimizer_;
  StepEngine engine_;
  CheckpointStore checkpoints_;
  std::vector<nn::NamedTensor> best_;  // weights of the best epoch; empty before the first evaluation
  RunState state_;

  // Of this run only.
  const absl::Time run_start_;
  double seconds_before_ = 0;  // train_seconds of earlier runs
  int64_t graphs_before_ = 0;  // of earlier runs
  int64_t run_steps_ = 0;
  double step_seconds_ = 0;
  int64_t checkpoint_step_ = 0;
  Progress progress_;
  LookAhead look_ahead_before_;  // of earlier epochs
  ProgressMeter meter_;
  absl::Time next_loss_read_ = absl::InfinitePast();
};

}  // namespace permafrost::train
