// The interface through which jobs/ runs training: no torch, no wire types.
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

// The look-ahead of this run.
using LookAhead = data::LookAhead;

// Counts what this rank exchanged with the others since its team was formed.
struct Exchange {
  int64_t replicas = 0, exchanges = 0;
  double seconds = 0;  // waiting included; the start and evaluation count too
  int64_t sent_bytes = 0;
  std::vector<RankProgress> ranks;  // by rank, as far as this one knows: the leader has all, another only its own
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

// Counters begin at the job's first step and survive resumes, but for those of this run alone: phase_seconds,
// look_ahead and exchange.
struct Progress {
  int64_t epoch = 0;  // from 1; 0 before the first step
  int64_t step_in_epoch = 0;
  int64_t steps_per_epoch = 0;
  int64_t step = 0;
  double loss = 0;               // mean over this epoch's graphs so far
  double graphs_per_second = 0;  // "graphs" are the seed nodes of a node-level job, here and below
  absl::Duration eta = absl::ZeroDuration();
  int64_t graphs = 0, nodes = 0, edges = 0;  // real rows
  int64_t padding_nodes = 0, padding_edges = 0;
  PhaseSeconds phase_seconds;
  // Executables that are captured before the next step, and how many of them are already. 0 of 0: none. Not stored.
  int64_t warm_up_done = 0, warm_up_total = 0;
  int64_t checkpoint_step = 0;  // newest complete checkpoint
  // Batches whose steps were taken back, since they made something that is not finite; they count as steps.
  int64_t skipped_batches = 0;
  std::optional<LookAhead> look_ahead;  // of jobs that sample one large graph
  std::optional<Exchange> exchange;     // of jobs of several replicas
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
  int64_t epoch = 0;  // from 1
  double train_loss = 0, valid_loss = 0;
  double valid_metric = 0;  // the first of MetricsOf the job
  double learning_rate = 0;
  double train_seconds = 0, valid_seconds = 0;
  double graphs_per_second = 0;
  // MetricsOf the job, the first one too; empty in epochs that an older version ran.
  std::vector<double> valid_metrics;
  // Counts of the graph cache in all training steps of the job up to here, from ModeStats; all 0 in epochs that an
  // older version ran. A resumed run captures again, so that `captures` may be more than an undisturbed run's.
  int64_t steps = 0;
  int64_t exact_hits = 0, padded_hits = 0, eager_steps = 0, captures = 0;
  int64_t nodes = 0, edges = 0, padding_nodes = 0, padding_edges = 0;
  // Held after the epoch's evaluation: the executables of both modes, and their arena.
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
  double train_seconds = 0;           // all runs of the job
  double mean_step_milliseconds = 0;  // this run, evaluation apart
  int64_t num_parameters = 0;
  // MetricsOf the job, as valid_metrics of an epoch.
  std::vector<double> best_valid_metrics, best_test_metrics, final_test_metrics;
  // Links of these splits that were not ranked, since they have no negatives; the metrics are of the others.
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

// A run reports to the job that it belongs to through this interface, and asks the job what to do. Every method is
// called on the thread that called Run.
class RunContext {
 public:
  virtual ~RunContext() = default;
  // Asked at each step boundary (training and evaluation).
  virtual StopRequest stop_requested() const = 0;
  // After each step; cheap.
  virtual void OnProgress(const Progress& progress) = 0;
  // After each step of training and evaluation; cheap. `entries`: nullptr leaves those reported before, whose
  // statistics are then a moment old; never nullptr after a command or at a run's end.
  virtual void OnGraphCache(const graphcache::Snapshot& snapshot,
                            std::shared_ptr<const std::vector<graphcache::EntryInfo>> entries) = 0;
  // Asked at each boundary of a training step. Returns the commands after `after_sequence` that take effect now, in
  // order: those stamped with `step` (optimizer steps done); and those without a stamp or with an earlier one, if none
  // with a later stamp is ahead of them. The latter get the stamp `step`, which is on disk when this returns.
  virtual std::vector<graphcache::Command> TakeCacheCommands(int64_t after_sequence, int64_t step) = 0;
  // A resumed run reports an epoch again that its checkpoint does not have, with equal metrics.
  virtual void OnEpoch(const EpochMetrics& metrics) = 0;
  // Asked before a checkpoint is written: a run that resumes from it does not report the epochs before it again. Ok:
  // those reported so far survive the process. Otherwise the checkpoint is not written. `is_last`: no step of this run
  // comes after it, and the run cannot do without it, so it may wait for the store.
  virtual absl::Status StoreEpochs(bool is_last) = 0;
  // A checkpoint is complete on disk, and the progress reported last says so.
  virtual void OnCheckpoint(int64_t step, absl::Duration duration) = 0;
  // A checkpoint could not be written. The run goes on and tries again later.
  virtual void OnCheckpointFailed(const absl::Status& error) = 0;
  virtual void Log(LogLevel level, std::string_view line) = 0;
};

struct RunRequest {
  spec::TrainOptions options;
  data::OpenedDataset dataset;
  // jobs/ID: checkpoints/STEP/ and artifacts/ are written under it. A complete checkpoint there is resumed from.
  std::filesystem::path job_directory;
  // Set for a rank of a job that another daemon leads: it has no directory, and keeps nothing.
  std::optional<RankPlace> place = std::nullopt;
};

struct PlanRequest {
  spec::TrainOptions options;
  data::OpenedDataset dataset;
  // Runs steps on the device, so that the plan tells bytes and times.
  bool measure = false;
};

struct CensusRequest {
  spec::TrainOptions options;
  data::OpenedDataset dataset;
  graphcache::TorchRelease release = graphcache::TorchRelease::k2_13;
};

// Weights that a job of these options is to begin with.
struct NodeRowsRequest {
  spec::TrainOptions options;
  data::OpenedDataset dataset;                 // of the job
  std::optional<data::OpenedDataset> trained;  // that the weights were trained on, where that is known
  std::string weights;                         // a safetensors file
};

// Selects the rows of an evaluation: graphs, nodes or links of a split, or all graphs or nodes.
enum class EvaluatedRows { kTrain, kValid, kTest, kAll };
inline constexpr EnumNames<EvaluatedRows, 4> kEvaluatedRowsNames{{{{EvaluatedRows::kTrain, "train"},
                                                                   {EvaluatedRows::kValid, "valid"},
                                                                   {EvaluatedRows::kTest, "test"},
                                                                   {EvaluatedRows::kAll, "all"}}}};

struct EvaluateRequest {
  spec::TrainOptions options;  // of the job that made the weights, but for its metrics: those that are wanted
  data::OpenedDataset dataset;
  // Describes the dataset that the weights were trained on, if that is another one and still known.
  std::optional<data::ImportedSummary> trained_on;
  // The dataset is another one than that, known or not. Its categories are then read by their source's values.
  bool other_dataset = false;
  // A value that the weights do not know contributes nothing, rather than to be refused.
  bool allow_unknown_categories = false;
  std::optional<uint64_t> trained_names;  // data::Graph::names_checksum of it, where it is one large graph
  EvaluatedRows rows = EvaluatedRows::kTest;
  std::string weights;  // a safetensors file
  std::string source;   // whose they are, for errors
  bool predictions = false;
};

struct RowsEvaluation {
  int64_t rows = 0;
  int64_t unranked = 0;         // links of these that have no negatives, and count in no metric
  double loss = 0;              // mean over present labels; NaN where there are none
  std::vector<double> metrics;  // MetricsOf the options; empty where no row has a label
  std::string predictions;      // CSV as of kTestPredictionsFile; empty unless asked for
  // Each line tells, for one column, which values contributed nothing since the weights do not know them.
  std::vector<std::string> notes;
};

// Describes the dataset of a job that begins with weights. `categories` tell what its categories stand for, where that
// is known. `other_dataset`: the weights are known to have been trained on another dataset.
struct WeightsTarget {
  std::optional<data::Categories> categories;
  bool other_dataset = false;
};

enum class RunEnd { kSucceeded, kCancelled, kDrained };
struct RunOutcome {
  RunEnd end = RunEnd::kSucceeded;
  std::optional<RunResult> result;  // when kSucceeded
};

// Files that a run leaves in job_directory / "artifacts", each replaced atomically.
inline constexpr std::string_view kBestWeightsFile = "best.safetensors";
inline constexpr std::string_view kLastWeightsFile = "last.safetensors";
inline constexpr std::string_view kTestPredictionsFile = "test_predictions.csv";
// In job_directory, there before the run where its options say init_from: the weights that it begins with
// (safetensors).
inline constexpr std::string_view kInitialWeightsFile = "initial.safetensors";
// The program's archive, in the same folder, if the job trains a program.
inline constexpr std::string_view kProgramFile = "program.pt2";

// Runs one job at a time on the device. Threads: Run from the device's one thread only; the rest is safe anywhere.
class Runner {
 public:
  virtual ~Runner() = default;
  // Trains to the end or to a stop at a step boundary, where a checkpoint is written first (cancel and drain alike).
  // Any exception of the math library becomes a Status here. A transient error (status.h) is the machine's: the same
  // request, run again later, goes on from the newest checkpoint.
  virtual absl::StatusOr<RunOutcome> Run(const RunRequest& request, RunContext& context) = 0;
  // Returns what each cache policy would cost a job of these options. Leaves nothing behind but a set's shape plan.
  // With `measure`, it may be called from the device's one thread only; else it is safe anywhere and leaves the device
  // alone. `keep_going` is asked now and then; false ends with Cancelled. Errors: as CheckCompatible; DataLoss.
  virtual absl::StatusOr<graphcache::CachePlan> PlanCache(const PlanRequest& request,
                                                          const std::function<bool()>& keep_going) = 0;
  // Returns the entries that a job of these options would add to the graph cache of MPS. Runs a few of its steps, on
  // the host if there is no MPS. If device() is kMps, it may be called from the device's one thread only; else it is
  // safe anywhere. Errors: as PlanCache; FailedPrecondition for a step whose keys do not follow from the sizes of its
  // batch, and where this libtorch is for another accelerator than MPS.
  virtual absl::StatusOr<graphcache::Census> TakeCensus(const CensusRequest& request,
                                                        const std::function<bool()>& keep_going) = 0;
  // One pass of weights over rows of a dataset; nothing is trained or left behind. From the device's one thread only
  // where device() is not kCpu; else safe anywhere. `on_progress` hears of rows done and in all (0: not known yet), and
  // returns whether to go on; Cancelled when not. Errors: as CheckCompatible, under "" and "dataset"; InvalidArgument
  // with violations of "rows" where there are none, and of "dataset" where the weights do not fit it or where, without
  // predictions, none of its rows has a label; ResourceExhausted where what this process holds leaves no room;
  // DataLoss.
  virtual absl::StatusOr<RowsEvaluation> EvaluateWeights(
      const EvaluateRequest& request, const std::function<bool(int64_t done, int64_t total)>& on_progress) = 0;
  // Ok if a model of these options can be built for this set; else InvalidArgument with violations under `prefix`.
  virtual absl::Status CheckCompatible(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                       std::string_view prefix) const = 0;
  // The request's weights, in which each row of a node is given to the node of the same name in the dataset of a job of
  // these options, where the names tell that rows differ; as they are where the model has no rows of nodes, or none is
  // among the weights. Such a file is for this job alone. Errors: InvalidArgument with a violation under `prefix`: no
  // node has the name of one that was trained; it cannot be told whose the rows are; not a safetensors file. DataLoss.
  virtual absl::StatusOr<std::string> MapNodeRows(NodeRowsRequest request, std::string_view prefix) const = 0;
  // Ok if a job of these options, compatible ones, can begin with the weights of this safetensors file; else
  // InvalidArgument with a violation under `prefix`.
  virtual absl::Status CheckInitialWeights(const spec::TrainOptions& options, const data::ImportedSummary& summary,
                                           std::string_view file, std::string_view prefix,
                                           const WeightsTarget& target = {}) const = 0;
  // Checks that there is memory to run a compatible job, as far as its plan tells, and that it has something to learn
  // from. A set's plan is kept for the run. The request's `measure` is not read. Returns what the job's user should
  // know, a line each. Errors: InvalidArgument with violations under `prefix`; Cancelled where `keep_going`, asked now
  // and then, says so; DataLoss.
  virtual absl::StatusOr<std::vector<std::string>> CheckFits(const PlanRequest& request, std::string_view prefix,
                                                             const std::function<bool()>& keep_going) = 0;
  // Reads the archive of a program and checks it whole, as a run of it would, and tells what it is. The device is not
  // used. Errors: as program::LoadProgram (server/program/load.h), in one line; ResourceExhausted if the archive is
  // larger than the memory this process may use, transient if other work holds that memory.
  virtual absl::StatusOr<spec::ProgramDescription> DescribeProgram(const std::filesystem::path& archive) const = 0;
  virtual DeviceKind device() const = 0;  // never kAuto
  virtual int threads() const = 0;
  virtual std::string_view torch_version() const = 0;
  // The peak begins anew with each run.
  virtual StorageUse storage_use() const { return {}; }
  // The state now. Values that only the device's thread may read are as it published them last.
  virtual DeviceState device_state() const { return {}; }
};

}  // namespace permafrost::train
