// The interface through which jobs/ runs training. It uses neither torch nor wire types.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device.h"
#include "base/enum_names.h"
#include "data/batching/block_stream.h"
#include "data/store/dataset.h"
#include "graphcache/cache_plan.h"
#include "graphcache/census.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"
#include "spec/field.h"
#include "spec/program_description.h"
#include "spec/train_options.h"
#include "train/peers.h"

namespace permafrost::train {

struct PhaseSeconds {
  double batch = 0, forward = 0, backward = 0, optimizer = 0;
};

template <class F>
void VisitFields(spec::Options<PhaseSeconds>, F&& f) {
  using P = PhaseSeconds;
  f({.name = "batch"}, &P::batch);
  f({.name = "forward"}, &P::forward);
  f({.name = "backward"}, &P::backward);
  f({.name = "optimizer"}, &P::optimizer);
}

// Counters of the sampler that runs ahead of this run's steps.
using LookAhead = data::LookAhead;

// Counts the exchanges of this rank with the other ranks since its team was formed.
struct Exchange {
  int64_t replicas = 0, exchanges = 0;
  double seconds = 0;  // includes waiting, and exchanges at the run's begin and in evaluations
  int64_t sent_bytes = 0;
  std::vector<RankProgress> ranks;  // by rank; only the leader knows all, another rank only itself
};

template <class F>
void VisitFields(spec::Options<Exchange>, F&& f) {
  using E = Exchange;
  f({.name = "replicas"}, &E::replicas);
  f({.name = "exchanges"}, &E::exchanges);
  f({.name = "seconds"}, &E::seconds);
  f({.name = "sent_bytes"}, &E::sent_bytes);
  f({.name = "ranks"}, &E::ranks);
}

// The progress of a job. Counters begin at the job's first step and survive resumes. Only phase_seconds, look_ahead
// and exchange begin anew with each run.
struct Progress {
  int64_t epoch = 0;  // counted from 1; 0 before the first step
  int64_t step_in_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t step = 0;
  double loss = 0;               // mean over the graphs of this epoch so far
  double graphs_per_second = 0;  // here and below: in a node-level job, "graphs" are seed nodes
  absl::Duration eta = absl::ZeroDuration();
  int64_t graphs = 0, nodes = 0, edges = 0;  // without padding
  int64_t padding_nodes = 0, padding_edges = 0;
  PhaseSeconds phase_seconds;
  // The number of captures that are to be made before the next step, and how many of them are done. Both are 0 if
  // none are to be made. Not stored.
  int64_t warm_up_done = 0, warm_up_total = 0;
  int64_t checkpoint_step = 0;  // step of the newest complete checkpoint
  // The number of steps that were undone because they produced a value that is not finite. Counters of steps include
  // them.
  int64_t skipped_batches = 0;
  std::optional<LookAhead> look_ahead;  // set for jobs that sample one large graph
  std::optional<Exchange> exchange;     // set for jobs with several replicas
};

template <class F>
void VisitFields(spec::Options<Progress>, F&& f) {
  using P = Progress;
  f({.name = "epoch"}, &P::epoch);
  f({.name = "step_in_epoch"}, &P::step_in_epoch);
  f({.name = "steps_per_epoch"}, &P::steps_per_epoch);
  f({.name = "step"}, &P::step);
  f({.name = "loss"}, &P::loss);
  f({.name = "graphs_per_second"}, &P::graphs_per_second);
  f({.name = "eta"}, &P::eta);
  f({.name = "graphs"}, &P::graphs);
  f({.name = "nodes"}, &P::nodes);
  f({.name = "edges"}, &P::edges);
  f({.name = "padding_nodes"}, &P::padding_nodes);
  f({.name = "padding_edges"}, &P::padding_edges);
  f({.name = "phase_seconds"}, &P::phase_seconds);
  f({.name = "warm_up_done", .not_stored = true}, &P::warm_up_done);
  f({.name = "warm_up_total", .not_stored = true}, &P::warm_up_total);
  f({.name = "checkpoint_step"}, &P::checkpoint_step);
  f({.name = "skipped_batches"}, &P::skipped_batches);
  f({.name = "look_ahead"}, &P::look_ahead);
  f({.name = "exchange"}, &P::exchange);
}

struct EpochMetrics {
  int64_t epoch = 0;  // counted from 1
  double train_loss = 0, valid_loss = 0;
  double valid_metric = 0;  // the first of the job's metrics (MetricsOf)
  double learning_rate = 0;
  double train_seconds = 0, valid_seconds = 0;
  double graphs_per_second = 0;
  // All metrics of the job, in the order of MetricsOf. Empty in epochs that an older version ran.
  std::vector<double> valid_metrics;
  // Counters of the graph cache (ModeStats) over all training steps of the job so far. They are 0 in epochs that an
  // older version ran. A resumed run captures again, so `captures` may be higher than in an uninterrupted run.
  int64_t steps = 0;
  int64_t exact_hits = 0, padded_hits = 0, eager_steps = 0, captures = 0;
  int64_t nodes = 0, edges = 0, padding_nodes = 0, padding_edges = 0;
  // Bytes that the executables of both modes and their arena hold after the epoch's evaluation.
  int64_t cache_bytes = 0;
};

template <class F>
void VisitFields(spec::Options<EpochMetrics>, F&& f) {
  using E = EpochMetrics;
  f({.name = "epoch"}, &E::epoch);
  f({.name = "train_loss"}, &E::train_loss);
  f({.name = "valid_loss"}, &E::valid_loss);
  f({.name = "valid_metric"}, &E::valid_metric);
  f({.name = "learning_rate"}, &E::learning_rate);
  f({.name = "train_seconds"}, &E::train_seconds);
  f({.name = "valid_seconds"}, &E::valid_seconds);
  f({.name = "graphs_per_second"}, &E::graphs_per_second);
  f({.name = "valid_metrics", .only_stored = true}, &E::valid_metrics);
  f({.name = "steps"}, &E::steps);
  f({.name = "exact_hits"}, &E::exact_hits);
  f({.name = "padded_hits"}, &E::padded_hits);
  f({.name = "eager_steps"}, &E::eager_steps);
  f({.name = "captures"}, &E::captures);
  f({.name = "nodes"}, &E::nodes);
  f({.name = "edges"}, &E::edges);
  f({.name = "padding_nodes"}, &E::padding_nodes);
  f({.name = "padding_edges"}, &E::padding_edges);
  f({.name = "cache_bytes"}, &E::cache_bytes);
}

struct RunResult {
  int64_t best_epoch = 0;
  double best_valid_metric = 0;
  double best_test_metric = 0, best_test_loss = 0;
  double final_test_metric = 0, final_test_loss = 0;
  double train_seconds = 0;           // over all runs of the job
  double mean_step_milliseconds = 0;  // over this run, without evaluation
  int64_t num_parameters = 0;
  // All metrics of the job, in the order of MetricsOf. `best` refers to the epoch with the best validation, and
  // `final` to the last epoch.
  std::vector<double> best_valid_metrics, best_test_metrics, final_test_metrics;
  // The number of links of each split that were not ranked, because they have no negatives. The metrics leave them
  // out.
  int64_t unranked_valid_links = 0, unranked_test_links = 0;
};

template <class F>
void VisitFields(spec::Options<RunResult>, F&& f) {
  using R = RunResult;
  f({.name = "best_epoch"}, &R::best_epoch);
  f({.name = "best_valid_metric"}, &R::best_valid_metric);
  f({.name = "best_test_metric"}, &R::best_test_metric);
  f({.name = "best_test_loss"}, &R::best_test_loss);
  f({.name = "final_test_metric"}, &R::final_test_metric);
  f({.name = "final_test_loss"}, &R::final_test_loss);
  f({.name = "train_seconds"}, &R::train_seconds);
  f({.name = "mean_step_milliseconds"}, &R::mean_step_milliseconds);
  f({.name = "num_parameters"}, &R::num_parameters);
  f({.name = "best_valid_metrics", .only_stored = true}, &R::best_valid_metrics);
  f({.name = "best_test_metrics", .only_stored = true}, &R::best_test_metrics);
  f({.name = "final_test_metrics", .only_stored = true}, &R::final_test_metrics);
  f({.name = "unranked_valid_links"}, &R::unranked_valid_links);
  f({.name = "unranked_test_links"}, &R::unranked_test_links);
}

enum class StopRequest { kNone, kCancel, kDrain };
enum class LogLevel { kInfo, kWarning, kError };

// A run reports to its job through this interface, and asks the job what to do.
// Threads: every method is called on the thread that called Run.
class RunContext {
 public:
  virtual ~RunContext() = default;
  // Called at each step boundary of training and evaluation.
  virtual StopRequest stop_requested() const = 0;
  // Called after each step; must be cheap.
  virtual void OnProgress(const Progress& progress) = 0;
  // Called after each step of training and evaluation; must be cheap. If `entries` is null, the entries of the last
  // report are still valid, except that their statistics may be slightly old. `entries` is never null after a command
  // or at a run's end.
  virtual void OnGraphCache(const graphcache::Snapshot& snapshot,
                            std::shared_ptr<const std::vector<graphcache::EntryInfo>> entries) = 0;
  // Called at each boundary of a training step. Returns, in order, the commands after `after_sequence` that take
  // effect now. `step` is the number of optimizer steps done. A command's stamp is its field `step`. Commands with
  // the stamp `step`, an earlier stamp or no stamp take effect, unless a command with a later stamp precedes them.
  // Each gets the stamp `step`, and all stamps are on disk before this method returns. If new stamps cannot be
  // stored, the first command that needs one and all commands after it take effect at a later call.
  virtual std::vector<graphcache::Command> TakeCacheCommands(int64_t after_sequence, int64_t step) = 0;
  // Takes an epoch's metrics. A resumed run repeats the epochs that its checkpoint lacks, and reports them again,
  // with equal metrics.
  virtual void OnEpoch(const EpochMetrics& metrics) = 0;
  // Called before a checkpoint is written. Stores the epochs reported so far on disk, because a run that resumes from
  // the checkpoint does not report them again. After an error the checkpoint is not written.
  // If `is_last` is true, the run has no further step and needs this checkpoint, so the call may wait for the store.
  virtual absl::Status StoreEpochs(bool is_last) = 0;
  // Called when the checkpoint of `step` is complete on disk. The newest reported progress already has this step as
  // its checkpoint_step.
  virtual void OnCheckpoint(int64_t step, absl::Duration duration) = 0;
  // Called when a checkpoint could not be written. The run goes on and tries again later.
  virtual void OnCheckpointFailed(const absl::Status& error) = 0;
  virtual void Log(LogLevel level, std::string_view line) = 0;
};

struct RunRequest {
  spec::TrainOptions options;
  data::OpenedDataset dataset;
  // The folder jobs/ID, under which checkpoints/STEP/ and artifacts/ are written. If it has a complete checkpoint,
  // the run resumes from it.
  std::filesystem::path job_directory;
  // Set if another daemon leads the job. This run is then the rank `place`, has no directory, and keeps nothing on
  // disk.
  std::optional<RankPlace> place = std::nullopt;
};

struct PlanRequest {
  spec::TrainOptions options;
  data::OpenedDataset dataset;
  // If true, steps run on the device, and the plan contains measured bytes and times.
  bool measure = false;
};

struct CensusRequest {
  spec::TrainOptions options;
  data::OpenedDataset dataset;
  graphcache::TorchRelease release = graphcache::TorchRelease::k2_13;
};

// A request to reorder the rows of weights of single nodes for a job's dataset. The job begins with the result.
struct NodeRowsRequest {
  spec::TrainOptions options;
  data::OpenedDataset dataset;                 // the job's dataset
  std::optional<data::OpenedDataset> trained;  // dataset that the weights were trained on, if known
  std::string weights;                         // bytes of a safetensors file
};

// Selects the rows of an evaluation: the graphs, nodes or links of a split, or all graphs or nodes of the dataset.
enum class EvaluatedRows { kTrain, kValid, kTest, kAll };
inline constexpr EnumNames<EvaluatedRows, 4> kEvaluatedRowsNames{{{{EvaluatedRows::kTrain, "train"},
                                                                   {EvaluatedRows::kValid, "valid"},
                                                                   {EvaluatedRows::kTest, "test"},
                                                                   {EvaluatedRows::kAll, "all"}}}};

struct EvaluateRequest {
  // The options of the job that made the weights, except that `metrics` are those to compute in the evaluation.
  spec::TrainOptions options;
  data::OpenedDataset dataset;
  // Describes the dataset that the weights were trained on. Set if that dataset is not `dataset` and is still known.
  std::optional<data::ImportedSummary> trained_on;
  // True if the weights were trained on another dataset, even an unknown one. Categories are then matched by their
  // values in the source.
  bool other_dataset = false;
  // If true, a category that the weights do not know contributes nothing. If false, the evaluation is refused.
  bool allow_unknown_categories = false;
  // data::Graph::names_checksum of the dataset that the weights were trained on, if that is one large graph.
  std::optional<uint64_t> trained_names;
  EvaluatedRows rows = EvaluatedRows::kTest;
  std::string weights;  // bytes of a safetensors file
  std::string source;   // owner of the weights, for errors
  bool predictions = false;
};

struct RowsEvaluation {
  int64_t rows = 0;
  int64_t unranked = 0;         // links without negatives, which no metric counts
  double loss = 0;              // mean over present labels; NaN if there are none
  std::vector<double> metrics;  // in the order of MetricsOf; empty if no row has a label
  std::string predictions;      // CSV like kTestPredictionsFile; empty unless requested
  // One line for each column with categories that the weights do not know. These categories contributed nothing.
  std::vector<std::string> notes;
};

// Describes the dataset of a job that begins with given weights. `categories` holds the values of the dataset's
// categories, if known. `other_dataset` is true if the weights are known to come from another dataset.
struct WeightsTarget {
  std::optional<data::Categories> categories;
  bool other_dataset = false;
};

enum class RunEnd { kSucceeded, kCancelled, kDrained };
struct RunOutcome {
  RunEnd end = RunEnd::kSucceeded;
  std::optional<RunResult> result;  // set if kSucceeded
};

// Files that a run leaves in job_directory / "artifacts", each replaced atomically.
inline constexpr std::string_view kBestWeightsFile = "best.safetensors";
inline constexpr std::string_view kLastWeightsFile = "last.safetensors";
inline constexpr std::string_view kTestPredictionsFile = "test_predictions.csv";
// The file in job_directory with the weights that the job begins with (safetensors). The code that makes a job with
// init_from writes the file before the run.
inline constexpr std::string_view kInitialWeightsFile = "initial.safetensors";
// The file in job_directory with the program's archive, if the job trains a program.
inline constexpr std::string_view kProgramFile = "program.pt2";

// Runs one job at a time on the device.
// Threads: Run is called from the device's one thread only. The other methods are thread-safe, unless they say
// otherwise.
class Runner {
 public:
  virtual ~Runner() = default;
  // Trains to the end, or to a stop at a step boundary. Before it stops, whether for cancel or drain, it writes a
  // checkpoint. Turns any exception of the math library into a Status.
  // Errors: those of training. A transient error (status.h) is the machine's fault. After it, the caller may run the
  // request again later, and the run goes on from the newest checkpoint.
  virtual absl::StatusOr<RunOutcome> Run(const RunRequest& request, RunContext& context) = 0;
  // Returns what each cache policy would cost a job with these options. Leaves nothing on disk, except the shape plan
  // of a job on a set. Calls `keep_going` now and then; if that returns false, ends with Cancelled.
  // Threads: with `measure`, only the device's one thread may call it. Otherwise it is thread-safe and does not use
  // the device.
  // Errors: those of CheckCompatible; DataLoss.
  virtual absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request,
                                                          const std::function<bool()>& keep_going) = 0;
  // Counts the entries that a job with these options would add to the graph cache of MPS. For this, runs a few of the
  // job's steps, on the host if there is no MPS.
  // Threads: if device() is kMps, only the device's one thread may call it. Otherwise it is thread-safe.
  // Errors: those of PlanCache. FailedPrecondition if the keys of a step do not follow from the sizes of its batch,
  // or if this libtorch is for an accelerator other than MPS.
  virtual absl::StatusOr<graphcache::Census> TakeCensus(const CensusRequest& request,
                                                        const std::function<bool()>& keep_going) = 0;
  // Evaluates weights on rows of a dataset, in one pass. Trains nothing and leaves nothing on disk. Calls
  // `on_progress` with the rows done and the rows in total (0 if not known yet). If that returns false, ends with
  // Cancelled.
  // Threads: if device() is not kCpu, only the device's one thread may call it. Otherwise it is thread-safe.
  // Errors: those of CheckCompatible, under "" and "dataset". InvalidArgument with violations of "rows" if the
  // dataset has no such rows. InvalidArgument with violations of "dataset" if the weights do not fit the dataset, or
  // if no row has a label and no predictions are requested. ResourceExhausted if other work of this process leaves
  // too little memory. DataLoss.
  virtual absl::StatusOr<RowsEvaluation> EvaluateWeights(
      const EvaluateRequest& request, const std::function<bool(int64_t done, int64_t total)>& on_progress) = 0;
  // Checks that a model with these options can be built for this dataset.
  // Errors: InvalidArgument with violations under `prefix`.
  virtual absl::Status CheckCompatible(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                       std::string_view prefix) const = 0;
  // Returns the request's weights with rows of single nodes assigned to the nodes of the job's dataset. If the names
  // show that the rows differ, each node of the job's dataset gets the row of the trained node with its name. Such a
  // file is for this job alone. If the model or the file has no rows of nodes, returns the weights unchanged. If the
  // weights are not a safetensors file, also returns them unchanged; CheckInitialWeights then refuses them.
  // Errors: InvalidArgument with a violation under `prefix` if no node has the name of a trained node, or if it is
  // unknown which nodes the rows belong to. DataLoss.
  virtual absl::StatusOr<std::string> MapNodeRows(NodeRowsRequest request, std::string_view prefix) const = 0;
  // Checks that a job with these options, which CheckCompatible has accepted, can begin with the weights of this
  // safetensors file.
  // Errors: InvalidArgument with a violation under `prefix`.
  virtual absl::Status CheckInitialWeights(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                           std::string_view file, std::string_view prefix,
                                           const WeightsTarget& target = {}) const = 0;
  // Checks that a job has enough memory, as far as its plan tells, and has something to learn from. CheckCompatible
  // must have accepted the job's options. For a job on a set, stores the plan for the run. Ignores `measure`. Returns
  // notes for the job's user, one line each. Calls `keep_going` now and then.
  // Errors: InvalidArgument with violations under `prefix`. Cancelled if `keep_going` returns false. DataLoss.
  virtual absl::StatusOr<std::vector<std::string>> CheckFits(const PlanRequest& request, std::string_view prefix,
                                                             const std::function<bool()>& keep_going) = 0;
  // Reads and checks the whole archive of a program, as a run would, and describes the program. Does not use the
  // device.
  // Errors: those of program::LoadProgram (server/program/load.h), in one line. ResourceExhausted if the archive is
  // larger than the memory that this process may use; the error is transient if other work holds that memory.
  virtual absl::StatusOr<spec::ProgramDescription> DescribeProgram(const std::filesystem::path& archive) const = 0;
  virtual DeviceKind device() const = 0;  // never kAuto
  virtual int threads() const = 0;
  virtual std::string_view torch_version() const = 0;
  // Returns the storage that tensors use. The peak starts again with each run.
  virtual StorageUse storage_use() const { return {}; }
  // Returns the device's present state. If only the device's thread may read a value, it is the value that this
  // thread last published.
  virtual DeviceState device_state() const { return {}; }
};

}  // namespace permafrost::train
