// Checkpoints of a run: jobs/ID/checkpoints/STEP/, complete or absent.
// A checkpoint holds weights, optimizer, the best weights so far, and everything else that the rest of the run depends
// on, so that a run resumed from it ends bit-equal to one that was never interrupted (CPU, equal thread count).
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

// Lowers a learning rate when validation gets no better: schedule kPlateau, as
// torch.optim.lr_scheduler.ReduceLROnPlateau with threshold_mode "rel" and no cooldown.
struct PlateauState {
  double learning_rate = 0;  // what it has fallen to
  // The best value of the deciding metric so far; NaN: none yet. It is not that of the job's best epoch: a value that
  // is better by less than the threshold is none here.
  double best = std::numeric_limits<double>::quiet_NaN();
  int64_t bad_epochs = 0;  // in a row
  bool operator==(const PlateauState&) const = default;
};

// Takes an epoch's value of the deciding metric. Returns whether the learning rate fell. NaN changes nothing.
bool TakeEpoch(const spec::OptimizerOptions& options, spec::Metric metric, double value, PlateauState& state);

// The numbers of a checkpoint.
struct RunState {
  int64_t step = 0;              // optimizer steps done
  data::EpochPosition position;  // batches consumed; batch == batches of the epoch: only its evaluation is left
  int64_t best_epoch = 0;        // from 1; 0: none yet
  // NaN before the first evaluation, and where there is nothing to evaluate on.
  double best_valid_metric = std::numeric_limits<double>::quiet_NaN();
  std::vector<double> best_valid_metrics;  // MetricsOf the job, of the best epoch
  double train_seconds = 0;                // all runs, evaluation included
  double epoch_seconds = 0;                // training time of the epoch so far
  uint64_t seed = 0;                       // with `step` the whole state of the counter-based generators
  int threads = 0;                         // what the weights were computed with
  uint64_t dataset_checksum = 0;           // data::ContentChecksumOf what they were trained on; 0: not known
  PlateauState plateau;                    // of schedule kPlateau
  int64_t rewinds = 0;                     // of NonFinite::kRewind, as far as this checkpoint knows
  std::vector<int64_t> skipped_steps;      // steps whose batches were skipped, rising
};

// The numbers as JSON, and back; NaN and all digits survive. Errors: DataLoss.
std::string RunStateToJson(const RunState& state);
absl::StatusOr<RunState> RunStateFromJson(const std::string& text);

struct Checkpoint {
  RunState state;
  std::vector<nn::NamedTensor> model;  // parameters and buffers
  std::vector<nn::NamedTensor> optimizer;
  std::vector<nn::NamedTensor> accumulators;  // sums over the epoch so far
  std::vector<nn::NamedTensor> best;          // empty until the first evaluation
  // The tensors that the job exports as its last weights, if these are not `model`. A resumed run does not need them.
  std::vector<nn::NamedTensor> averaged;
  // The graph cache with its executables in order. nullopt: a version without a graph cache wrote the checkpoint.
  std::optional<graphcache::Snapshot> cache;
  std::vector<graphcache::EntryInfo> cache_entries;
};

// One of the lists of tensors of a checkpoint.
using CheckpointPart = std::vector<nn::NamedTensor> Checkpoint::*;

// The bytes of all tensors in it, which is about what its files take.
uint64_t TensorBytes(const Checkpoint& checkpoint);

class CheckpointStore {
 public:
  // `directory`: jobs/ID/checkpoints, made when needed. `metadata` goes into the weights' files.
  // `warn` hears of each damaged checkpoint that is set aside.
  CheckpointStore(std::filesystem::path directory, int64_t keep, std::map<std::string, std::string> metadata,
                  std::function<void(std::string_view)> warn);

  // Durable when Ok; older ones beyond `keep` are removed after. On an error nothing of it stays on disk, and those
  // before it are as they were. It is transient (status.h) where the machine is at fault, or whoever removed its
  // folder.
  absl::Status Save(const Checkpoint& checkpoint);
  // The newest that is whole, without its tensors; nullopt: there are none. Newer ones that are proven damaged (a file
  // is missing, a checksum or the structure does not add up) are renamed to `.damaged-STEP`, never deleted. Errors:
  // DataLoss if there are some and all are damaged, which then keep their names; FailedPrecondition (transient) for one
  // that a newer build wrote; any other, all transient (status.h), where one cannot be read just now. Nothing is set
  // aside then.
  absl::StatusOr<std::optional<Checkpoint>> FindNewest() const;
  // Hands `take` the tensors of the checkpoint of `step`, part by part, of which memory holds one at a time; none of a
  // part that it lacks. Not `averaged`, which nobody goes on from. Errors: those of `take`; DataLoss where it is
  // damaged, or not there; any other, all transient, where it cannot be read just now.
  using TakePart = std::function<absl::Status(CheckpointPart part, const std::vector<nn::NamedTensor>& tensors)>;
  absl::Status LoadTensors(int64_t step, const TakePart& take) const;
  // Files of the checkpoint of `step`.
  std::filesystem::path WeightsFile(int64_t step) const;
  std::filesystem::path BestFile(int64_t step) const;
  std::filesystem::path AveragedFile(int64_t step) const;

 private:
  absl::StatusOr<std::vector<int64_t>> Steps() const;  // newest first
  // Returns everything but the tensors, which `take` gets.
  absl::StatusOr<Checkpoint> Load(int64_t step, const TakePart& take) const;
  absl::Status Write(const Checkpoint& checkpoint);
  absl::Status WriteFiles(const Checkpoint& checkpoint, const std::filesystem::path& directory) const;
  absl::Status SetAside(int64_t step) const;
  // Removes what a crash during Save left, and puts a checkpoint back that it had set aside.
  absl::Status RepairAfterCrash() const;

  std::filesystem::path directory_;
  int64_t keep_;
  std::map<std::string, std::string> metadata_;
  std::function<void(std::string_view)> warn_;
};

// Decides when a run writes its checkpoints. Threads: one thread. Its only clock is the time that callers pass in: the
// time since this run's first step began. It must never fall.
class CheckpointSchedule {
 public:
  // A run's first checkpoint by time comes this early, so that a job that is killed again and again gets further each
  // time. The intervals after it double until they are CheckpointOptions::every_seconds.
  static constexpr absl::Duration kFirst = absl::Seconds(1);
  // Checkpoints by time take at most this part of a run: where one takes long, the next comes later. The first one
  // excepted, whose cost nobody knows before.
  static constexpr double kMaxPart = 0.02;

  explicit CheckpointSchedule(const spec::CheckpointOptions& options);

  // Asked at each boundary of a training step; `step`: optimizer steps done.
  bool Due(int64_t step, absl::Duration now) const;
  void OnSaved(absl::Duration begin, absl::Duration end);
  // One could not be written: the next try comes after a second, after two, four ... up to a minute, whatever is due.
  void OnFailed(absl::Duration now);

 private:
  const int64_t every_steps_;
  const absl::Duration every_;  // infinite: not by time
  absl::Duration interval_;
  absl::Duration next_;
  absl::Duration retry_interval_ = absl::ZeroDuration();  // > 0: the newest try failed
};

}  // namespace permafrost::train
