// Checkpoints of a run: the folders jobs/ID/checkpoints/STEP/, each complete or absent.
// A checkpoint holds weights, optimizer, the best weights so far, and everything else that the rest of the run
// depends on. So, on a CPU and with the same number of threads, a resumed run ends with the same bits as an
// uninterrupted one.
// Threads: the device thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "data/sampling/epoch_order.h"
#include "graphcache/snapshot.h"
#include "nn/tensor_set.h"
#include "spec/loss.h"
#include "spec/optimizer.h"
#include "spec/train_options.h"

namespace permafrost::train {

// State of schedule kPlateau, which lowers the learning rate when validation stops improving. It works like
// torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode "rel" and no cooldown.
struct PlateauState {
  double learning_rate = 0;  // the present learning rate
  // The best value so far of the metric that decides about the learning rate; NaN if there is none yet. An
  // improvement below the threshold does not count, so the job's best epoch may have a better value.
  double best = std::numeric_limits<double>::quiet_NaN();
  int64_t bad_epochs = 0;  // epochs without improvement, in a row
  bool operator==(const PlateauState&) const = default;
};

// Updates `state` by an epoch's value of the metric. Returns true if the learning rate fell. A NaN leaves `state`
// unchanged.
bool TakeEpoch(const spec::OptimizerOptions& options, spec::Metric metric, double value, PlateauState& state);

// The numbers of a checkpoint.
struct RunState {
  int64_t step = 0;  // optimizer steps done
  // Epochs and batches done. If `batch` is the number of batches of an epoch, only the epoch's evaluation is left.
  data::EpochPosition position;
  int64_t best_epoch = 0;  // counted from 1; 0 if there is none yet
  // NaN before the first evaluation, and if there is nothing to evaluate on.
  double best_valid_metric = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> best_valid_metrics;  // all metrics of the best epoch, in the order of MetricsOf
  double train_seconds = 0;                // over all runs, including evaluation
  double epoch_seconds = 0;                // training time in the present epoch so far
  uint64_t seed = 0;                       // `seed` and `step` are the whole state of the counter-based generators
  int threads = 0;                         // number of threads that computed the weights
  uint64_t dataset_checksum = 0;           // data::ContentChecksumOf the training data; 0 if unknown
  PlateauState plateau;                    // for schedule kPlateau
  int64_t rewinds = 0;                     // rewinds of NonFinite::kRewind, counted up to this checkpoint
  std::vector<int64_t> skipped_steps;      // steps whose batches were skipped, in rising order
};

// These functions convert a RunState to and from JSON. NaN and all digits survive. Errors: DataLoss.
std::string RunStateToJson(const RunState& state);
absl::StatusOr<RunState> RunStateFromJson(const std::string& text);

struct Checkpoint {
  RunState state;
  std::vector<nn::NamedTensor> model;  // parameters and buffers
  std::vector<nn::NamedTensor> optimizer;
  std::vector<nn::NamedTensor> accumulators;  // sums of losses over the epoch so far
  std::vector<nn::NamedTensor> best;          // empty before the first evaluation
  // The tensors that the job exports as its last weights, if these are not `model`. A resumed run does not need them.
  std::vector<nn::NamedTensor> averaged;
  // The graph cache, with its executables in order. It is nullopt if a version without a graph cache wrote the
  // checkpoint.
  std::optional<graphcache::Snapshot> cache;
  std::vector<graphcache::EntryInfo> cache_entries;
};

// One of the lists of tensors of a checkpoint.
using CheckpointPart = std::vector<nn::NamedTensor> Checkpoint::*;

// Returns the bytes of all tensors of the checkpoint: about the size of its files.
uint64_t TensorBytes(const Checkpoint& checkpoint);

class CheckpointStore {
 public:
  // `directory` is jobs/ID/checkpoints, made when needed. `metadata` goes into the files of weights. `warn` takes a
  // line for each damaged checkpoint that is set aside.
  CheckpointStore(std::filesystem::path directory, int64_t keep, std::map<std::string, std::string> metadata,
                  std::function<void(std::string_view)> warn);

  // Writes the checkpoint durably, and then removes older ones, so that `keep` remain.
  // Errors: a transient error (status.h) if the machine is at fault, or if the folder was removed. After an error,
  // nothing of the checkpoint is on disk, and earlier checkpoints are unchanged.
  absl::Status Save(const Checkpoint& checkpoint);
  // Returns the newest complete checkpoint without its tensors, or nullopt if there are no checkpoints. Newer
  // checkpoints that are proven damaged (a file is missing, or a checksum or the structure is wrong) are renamed to
  // `.damaged-STEP`, never deleted.
  // Errors: DataLoss if there are checkpoints and all are damaged; they keep their names. FailedPrecondition
  // (transient) if a newer build wrote the checkpoint. Any other error, always transient (status.h), if a checkpoint
  // cannot be read at the moment. In all these cases nothing is set aside.
  absl::StatusOr<std::optional<Checkpoint>> FindNewest() const;
  // Passes the tensors of the checkpoint of `step` to `take`, one part at a time, so that memory holds only one part.
  // If the checkpoint lacks a part, `take` gets an empty list for it. `averaged` is left out, because no resumed run
  // needs it.
  // Errors: those of `take`. DataLoss if the checkpoint is damaged or missing. Any other error, always transient, if
  // the checkpoint cannot be read at the moment.
  using TakePart = std::function<absl::Status(CheckpointPart part, const std::vector<nn::NamedTensor>& tensors)>;
  absl::Status LoadTensors(int64_t step, const TakePart& take) const;
  // These methods return paths of files of the checkpoint of `step`.
  std::filesystem::path WeightsFile(int64_t step) const;
  std::filesystem::path BestFile(int64_t step) const;
  std::filesystem::path AveragedFile(int64_t step) const;

 private:
  absl::StatusOr<std::vector<int64_t>> Steps() const;  // newest first
  // Passes the tensors to `take`, and returns the checkpoint without them.
  absl::StatusOr<Checkpoint> Load(int64_t step, const TakePart& take) const;
  absl::Status Write(const Checkpoint& checkpoint);
  absl::Status WriteFiles(const Checkpoint& checkpoint, const std::filesystem::path& directory) const;
  absl::Status SetAside(int64_t step) const;
  // Removes the partial files of a crash during Save, and restores a checkpoint that Save had moved aside.
  absl::Status RepairAfterCrash() const;

  std::filesystem::path directory_;
  int64_t keep_;
  std::map<std::string, std::string> metadata_;
  std::function<void(std::string_view)> warn_;
};

// Decides when a run writes its checkpoints. It reads no clock: callers pass the time since this run's first step
// began, which must never decrease.
// Threads: one thread.
class CheckpointSchedule {
 public:
  // The time from a run's first step to the first checkpoint that is due by time. It is short, so that a job that is
  // killed again and again still makes progress. Later intervals double up to CheckpointOptions::every_seconds.
  static constexpr absl::Duration kFirst = absl::Seconds(1);
  // The largest fraction of a run's time that may go into writing checkpoints that are due by time. If a checkpoint
  // takes long, the next one comes later. The first checkpoint is an exception, because its cost is unknown.
  static constexpr double kMaxPart = 0.02;

  explicit CheckpointSchedule(const spec::CheckpointOptions& options);

  // Returns true if a checkpoint is due. Called at each boundary of a training step; `step` is the number of
  // optimizer steps done.
  bool Due(int64_t step, absl::Duration now) const;
  void OnSaved(absl::Duration begin, absl::Duration end);
  // Called if a checkpoint could not be written. The next attempt comes after a second, then after two, four and so
  // on up to a minute, even if another checkpoint is due earlier.
  void OnFailed(absl::Duration now);

 private:
  const int64_t every_steps_;
  const absl::Duration every_;  // infinite if checkpoints are not written by time
  absl::Duration interval_;
  absl::Duration next_;
  absl::Duration retry_interval_ = absl::ZeroDuration();  // above 0 if the last attempt failed
};

}  // namespace permafrost::train
