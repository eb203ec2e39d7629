#include "telemetry/job_metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "telemetry/metrics.h"

namespace permafrost::telemetry {

// References into the registry, which owns every metric. Any thread may update a metric that the lock does not guard.
struct FeatureMetrics::Series {
  explicit Series(prometheus::Registry& registry)
      : hits(OneCounter(registry, "permafrost_feature_cache_hits_total",
                        "Rows of node features that batches found in memory, or on their way there.")),
        misses(OneCounter(registry, "permafrost_feature_cache_misses_total",
                          "Rows of node features that were read from the disk for a batch.")),
        evictions(OneCounter(registry, "permafrost_feature_cache_evictions_total",
                             "Rows that gave their memory to others, or to the system.")),
        read_bytes(OneCounter(registry, "permafrost_feature_cache_read_bytes_total", "Bytes read from the disk.")),
        read_errors(OneCounter(registry, "permafrost_feature_cache_read_errors_total",
                               "Reads that failed, or brought what was not written.")),
        over_budget(OneCounter(registry, "permafrost_feature_cache_over_budget_total",
                               "Batches that took memory beyond the budget, which was too small for them.")),
        resizes(OneCounter(registry, "permafrost_feature_cache_resizes_total",
                           "Changes of the budget during a run, as memory got short or plenty.")),
        stall_seconds(OneCounter(registry, "permafrost_feature_cache_stall_seconds_total",
                                 "Time that batches waited for rows to be read.")),
        read_seconds(prometheus::BuildHistogram()
                         .Name("permafrost_feature_cache_read_seconds")
                         .Help("Time of a read, from its start to its rows being in memory.")
                         .Register(registry)
                         .Add({}, std::vector<double>(kReadSeconds.begin(), kReadSeconds.end()))),
        budget_bytes(registry, "permafrost_feature_cache_budget_bytes",
                     "Memory that the cache of the running job may take. Absent where it has none, as those below."),
        bytes(registry, "permafrost_feature_cache_bytes", "Memory that the cache of the running job takes."),
        rows(registry, "permafrost_feature_cache_rows", "Rows in the cache of the running job."),
        read_depth(registry, "permafrost_feature_cache_read_depth", "Reads at once of the running job.") {}

  prometheus::Counter &hits, &misses, &evictions, &read_bytes, &read_errors, &over_budget, &resizes, &stall_seconds;
  prometheus::Histogram& read_seconds;
  absl::Mutex mu;
  MaybeGauge budget_bytes ABSL_GUARDED_BY(mu), bytes ABSL_GUARDED_BY(mu), rows ABSL_GUARDED_BY(mu),
      read_depth ABSL_GUARDED_BY(mu);
};

FeatureMetrics::FeatureMetrics(prometheus::Registry& registry) : series_(std::make_unique<Series>(registry)) {}
FeatureMetrics::~FeatureMetrics() = default;

void FeatureMetrics::Add(const FeatureCounts& increments) {
  series_->hits.Increment(static_cast<double>(increments.hits));
  series_->misses.Increment(static_cast<double>(increments.misses));
  series_->evictions.Increment(static_cast<double>(increments.evictions));
  series_->read_bytes.Increment(static_cast<double>(increments.read_bytes));
  series_->read_errors.Increment(static_cast<double>(increments.read_errors));
  series_->over_budget.Increment(static_cast<double>(increments.over_budget));
  series_->resizes.Increment(static_cast<double>(increments.resizes));
  series_->stall_seconds.Increment(increments.stall_seconds);
  if (increments.read_seconds > 0) {
    series_->read_seconds.ObserveMultiple({increments.reads.begin(), increments.reads.end()}, increments.read_seconds);
  }
}

void FeatureMetrics::Set(const std::optional<FeatureState>& state) {
  const auto of = [&state](auto FeatureState::*member) {
    return state ? std::optional(static_cast<double>((*state).*member)) : std::nullopt;
  };
  const absl::MutexLock lock(&series_->mu);
  series_->budget_bytes.Set(of(&FeatureState::budget_bytes));
  series_->bytes.Set(of(&FeatureState::used_bytes));
  series_->rows.Set(of(&FeatureState::rows));
  series_->read_depth.Set(of(&FeatureState::depth));
}

namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

constexpr std::string_view kFinishedStates[] = {"succeeded", "failed", "cancelled"};
// The label value of every reason that is not in the table below. Reasons come from many parts of the daemon, and a
// new reason must not add a label value unnoticed.
constexpr std::string_view kOtherReason = "OTHER";
constexpr std::string_view kFailureReasons[] = {"OUT_OF_MEMORY",       "DATA_DAMAGED",      "BAD_DATA",
                                                "RUN_FAILED",          "SERVER_DIED_AGAIN", "MAX_RUNTIME",
                                                "DEADLINE_EXCEEDED",   "NON_FINITE_LOSS",   "GRAPH_CACHE_MISS",
                                                "GRAPH_CACHE_STRICT",  "RETRIES_EXHAUSTED", "DATASET_CHANGED",
                                                "DEVICE_FAILED_AGAIN", kOtherReason};

// Returns the buckets' bounds in seconds.
const Buckets& StepBuckets() {
  static const Buckets buckets{1e-5,  2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 0.01,
                               0.025, 0.05,   0.1,  0.25, 0.5,    1,    2.5,  5,      10};
  return buckets;
}
const Buckets& WaitBuckets() {
  static const Buckets buckets{0.01, 0.1, 1, 10, 60, 300, 1800, 3600, 14400, 86400};
  return buckets;
}
const Buckets& EpochBuckets() {
  static const Buckets buckets{0.01, 0.05, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600, 14400};
  return buckets;
}
const Buckets& CheckpointBuckets() {
  static const Buckets buckets{1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
  return buckets;
}

double UnixSeconds() { return absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()); }

prometheus::Family<Histogram>& HistogramFamily(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

// References into the registry, which owns every metric. Any thread may update a metric that no lock below guards.
struct JobMetrics::Families {
  explicit Families(prometheus::Registry& registry)
      : queue_wait(HistogramFamily(registry, "permafrost_job_queue_wait_seconds",
                                   "Time jobs waited for the device, from creation or requeue.")
                       .Add({}, WaitBuckets())),
        resumes(OneCounter(registry, "permafrost_job_resumes_total",
                           "Jobs that were started again after a drain or a crash.")),
        retries(
            OneCounter(registry, "permafrost_job_retries_total",
                       "Runs that an error of the machine ended, such as a full disk: the job waits and runs again.")),
        preemptions(OneCounter(registry, "permafrost_job_preemptions_total",
                               "Jobs that made room for one of higher priority, after a checkpoint.")),
        expired(OneCounter(registry, "permafrost_jobs_expired_total",
                           "Jobs that had ended and were deleted, since --keep-finished-jobs keeps them no more.")),
        dropped_log_bytes(OneCounter(registry, "permafrost_job_log_dropped_bytes_total",
                                     "Bytes at the beginning of job logs that --max-job-log does not keep.")),
        failed_stores(OneCounter(registry, "permafrost_store_failures_total",
                                 "Statements that the database of jobs could not execute.")),
        failed_checkpoints(OneCounter(registry, "permafrost_checkpoint_failures_total",
                                      "Checkpoints that could not be written while the run went on.")),
        failed_log_lines(OneCounter(registry, "permafrost_job_log_failures_total",
                                    "Lines that could not be written to a job's log when they came.")),
        quarantined(OneCounter(registry, "permafrost_job_directories_quarantined_total",
                               "Directories of no job on record that were set aside.")),
        unreadable(OneGauge(registry, "permafrost_jobs_unreadable",
                            "Jobs whose record in the database cannot be read; they count as failed.")),
        steps(OneCounter(registry, "permafrost_train_steps_total", "Optimizer steps.")),
        graphs(OneCounter(registry, "permafrost_train_graphs_total", "Graphs trained on, padding apart.")),
        nodes(OneCounter(registry, "permafrost_train_nodes_total", "Nodes trained on, padding apart.")),
        edges(OneCounter(registry, "permafrost_train_edges_total", "Directed edges trained on, padding apart.")),
        padding_nodes(OneCounter(registry, "permafrost_train_padding_nodes_total", "Padding nodes of training steps.")),
        padding_edges(OneCounter(registry, "permafrost_train_padding_edges_total", "Padding edges of training steps.")),
        skipped_batches(OneCounter(registry, "permafrost_train_skipped_batches_total",
                                   "Batches that jobs skipped, since their steps made something that is not finite.")),
        exchanged_bytes(OneCounter(registry, "permafrost_train_exchanged_bytes_total",
                                   "Bytes sent to the other daemons of jobs with several replicas.")),
        exchange_seconds(OneCounter(registry, "permafrost_train_exchange_seconds_total",
                                    "Time in which values were exchanged with the other daemons of jobs with several "
                                    "replicas, waiting for them included.")),
        rank_steps(CounterFamily(registry, "permafrost_train_rank_steps_total",
                                 "Training steps of a rank, as the daemon that leads its job heard.")),
        rank_seconds(CounterFamily(registry, "permafrost_train_rank_seconds_total",
                                   "Time of the training steps of a rank, waiting for the others included.")),
        rank_exchange_seconds(CounterFamily(registry, "permafrost_train_rank_exchange_seconds_total",
                                            "The part of that time in which the rank exchanged values, waiting for "
                                            "the others included.")),
        step_seconds(HistogramFamily(registry, "permafrost_train_step_seconds",
                                     "Time of a training step by phase, on the device's thread.")),
        whole_step_seconds(HistogramFamily(registry, "permafrost_train_whole_step_seconds",
                                           "Time of a training step, all phases, on the device's thread.")
                               .Add({}, StepBuckets())),
        last_step(registry, "permafrost_train_last_step_timestamp_seconds",
                  "Unix time at which this process did its newest training step. Absent before the first."),
        batch(step_seconds.Add({{"phase", "batch"}}, StepBuckets())),
        forward(step_seconds.Add({{"phase", "forward"}}, StepBuckets())),
        backward(step_seconds.Add({{"phase", "backward"}}, StepBuckets())),
        optimizer(step_seconds.Add({{"phase", "optimizer"}}, StepBuckets())),
        epoch_seconds(
            HistogramFamily(registry, "permafrost_train_epoch_seconds", "Time of an epoch, its evaluation included.")
                .Add({}, EpochBuckets())),
        checkpoint_seconds(
            HistogramFamily(registry, "permafrost_checkpoint_seconds", "Time to write a complete checkpoint.")
                .Add({}, CheckpointBuckets())),
        checkpoint_timestamp(registry, "permafrost_checkpoint_timestamp_seconds",
                             "Unix time of the newest checkpoint of this process. Absent before the first."),
        checkpoint_age(
            registry, "permafrost_checkpoint_age_seconds",
            "Time since the running job's newest checkpoint, or since its run began where that has none. Absent "
            "while none runs."),
        epoch(registry, "permafrost_train_epoch", "Epoch of the running job, from 1. Absent while none runs."),
        loss(registry, "permafrost_train_loss",
             "Mean training loss of the running job over its epoch so far. Absent while none runs."),
        graphs_per_second(registry, "permafrost_train_graphs_per_second",
                          "Training throughput of the running job. Absent while none runs."),
        look_ahead_depth(registry, "permafrost_job_lookahead_depth",
                         "Batches that the running job's sampler may be ahead. Absent while none samples."),
        look_ahead_ready(registry, "permafrost_job_lookahead_ready_batches",
                         "Sampled batches that wait for the running job's step. Absent while none samples."),
        look_ahead_resident(
            registry, "permafrost_job_lookahead_resident_ratio",
            "Part of the wanted pages looked at that were in memory already, in this run. Absent while none "
            "samples."),
        look_ahead_stalls(OneCounter(registry, "permafrost_job_lookahead_stalls_total",
                                     "Steps that had to wait for their sampled batch.")),
        look_ahead_edges(OneCounter(registry, "permafrost_job_lookahead_sampled_edges_total", "Edges sampled.")),
        look_ahead_cut(OneCounter(registry, "permafrost_job_lookahead_cut_batches_total",
                                  "Sampled batches that lost edges to a budget of nodes or edges.")),
        look_ahead_pages(
            OneCounter(registry, "permafrost_job_lookahead_wanted_pages_total",
                       "Pages of large graphs that batches asked for, each once a batch; while all are found "
                       "in memory, one batch in eight asks.")),
        look_ahead_advised(OneCounter(registry, "permafrost_job_lookahead_advised_bytes_total",
                                      "Bytes of large graphs given to the kernel as needed soon.")),
        look_ahead_faults(OneCounter(registry, "permafrost_job_lookahead_major_faults_total",
                                     "Page faults of the process that read from disk while a job sampled.")) {}

  absl::Mutex mu;
  std::map<std::string, Gauge*, std::less<>> jobs;        // by state
  std::map<std::string, Counter*, std::less<>> finished;  // by state
  Histogram& queue_wait;
  std::map<std::string, Counter*, std::less<>> failures;  // by reason
  Counter &resumes, &retries, &preemptions, &expired, &dropped_log_bytes, &failed_stores, &failed_checkpoints,
      &failed_log_lines, &quarantined;
  Gauge& unreadable;
  Counter &steps, &graphs, &nodes, &edges, &padding_nodes, &padding_edges, &skipped_batches, &exchanged_bytes,
      &exchange_seconds;
  prometheus::Family<Counter>&rank_steps, &rank_seconds, &rank_exchange_seconds;
  prometheus::Family<Histogram>& step_seconds;
  Histogram& whole_step_seconds;
  MaybeGauge last_step ABSL_GUARDED_BY(mu);
  Histogram &batch, &forward, &backward, &optimizer;
  Histogram &epoch_seconds, &checkpoint_seconds;
  MaybeGauge checkpoint_timestamp ABSL_GUARDED_BY(mu), checkpoint_age ABSL_GUARDED_BY(mu);
  MaybeGauge epoch ABSL_GUARDED_BY(mu), loss ABSL_GUARDED_BY(mu), graphs_per_second ABSL_GUARDED_BY(mu);
  MaybeGauge look_ahead_depth ABSL_GUARDED_BY(mu), look_ahead_ready ABSL_GUARDED_BY(mu),
      look_ahead_resident ABSL_GUARDED_BY(mu);
  Counter &look_ahead_stalls, &look_ahead_edges, &look_ahead_cut, &look_ahead_pages, &look_ahead_advised,
      &look_ahead_faults;
  // Measures the time since the running job's newest checkpoint, or since the run's first call of SetRunning. nullopt
  // if no job runs.
  std::optional<Stopwatch> unsaved ABSL_GUARDED_BY(mu);
};

JobMetrics::JobMetrics(prometheus::Registry& registry, const std::vector<std::string_view>& state_names)
    : families_(std::make_unique<Families>(registry)), features_(registry) {
  auto& jobs = prometheus::BuildGauge().Name("permafrost_jobs").Help("Jobs on record by state.").Register(registry);
  for (std::string_view state : state_names) {
    families_->jobs[std::string(state)] = &jobs.Add({{"state", std::string(state)}});
  }
  auto& finished = prometheus::BuildCounter()
                       .Name("permafrost_jobs_finished_total")
                       .Help("Jobs that this process brought to an end, by their last state.")
                       .Register(registry);
  for (std::string_view state : kFinishedStates) {
    families_->finished[std::string(state)] = &finished.Add({{"state", std::string(state)}});
  }
  auto& failures = prometheus::BuildCounter()
                       .Name("permafrost_job_failures_total")
                       .Help("Jobs that failed in this process, by reason; OTHER: one that is not named here.")
                       .Register(registry);
  for (std::string_view reason : kFailureReasons) {
    families_->failures[std::string(reason)] = &failures.Add({{"reason", std::string(reason)}});
  }
}

JobMetrics::~JobMetrics() = default;

void JobMetrics::CountFailure(std::string_view reason) {
  const auto it = families_->failures.find(reason);
  (it == families_->failures.end() ? families_->failures.find(kOtherReason) : it)->second->Increment();
}

void JobMetrics::SetJobs(std::string_view state, int64_t count) {
  if (auto it = families_->jobs.find(state); it != families_->jobs.end()) it->second->Set(static_cast<double>(count));
}

void JobMetrics::ObserveQueueWait(absl::Duration wait) {
  // If the wall clock was set back since the job was created, the wait is negative.
  families_->queue_wait.Observe(std::max(0.0, absl::ToDoubleSeconds(wait)));
}

void JobMetrics::CountFinished(std::string_view state) {
  if (auto it = families_->finished.find(state); it != families_->finished.end()) it->second->Increment();
}

void JobMetrics::CountResume() { families_->resumes.Increment(); }

void JobMetrics::CountRetry() { families_->retries.Increment(); }
void JobMetrics::CountExpired() { families_->expired.Increment(); }
void JobMetrics::CountDroppedLog(int64_t bytes) { families_->dropped_log_bytes.Increment(static_cast<double>(bytes)); }
void JobMetrics::CountPreemption() { families_->preemptions.Increment(); }
void JobMetrics::CountFailedStore() { families_->failed_stores.Increment(); }
void JobMetrics::CountFailedCheckpoint() { families_->failed_checkpoints.Increment(); }
void JobMetrics::CountFailedLogLine() { families_->failed_log_lines.Increment(); }
void JobMetrics::CountQuarantined(int64_t directories) {
  families_->quarantined.Increment(static_cast<double>(directories));
}
void JobMetrics::SetUnreadable(int64_t jobs) { families_->unreadable.Set(static_cast<double>(jobs)); }

void JobMetrics::AddSteps(const StepCounts& increments) {
  families_->steps.Increment(static_cast<double>(increments.steps));
  families_->graphs.Increment(static_cast<double>(increments.graphs));
  families_->nodes.Increment(static_cast<double>(increments.nodes));
  families_->edges.Increment(static_cast<double>(increments.edges));
  families_->padding_nodes.Increment(static_cast<double>(increments.padding_nodes));
  families_->padding_edges.Increment(static_cast<double>(increments.padding_edges));
  families_->skipped_batches.Increment(static_cast<double>(increments.skipped_batches));
  families_->exchanged_bytes.Increment(static_cast<double>(increments.exchanged_bytes));
  families_->exchange_seconds.Increment(increments.exchange_seconds);
  for (size_t r = 0; r < increments.ranks.size(); ++r) {
    const RankCounts& rank = increments.ranks[r];
    if (rank.steps == 0) continue;
    const prometheus::Labels labels{{"rank", std::to_string(r)}};
    families_->rank_steps.Add(labels).Increment(static_cast<double>(rank.steps));
    families_->rank_seconds.Add(labels).Increment(rank.seconds);
    families_->rank_exchange_seconds.Add(labels).Increment(rank.exchange_seconds);
  }
}

void JobMetrics::ObserveStep(const StepSeconds& seconds) {
  families_->batch.Observe(seconds.batch);
  families_->forward.Observe(seconds.forward);
  families_->backward.Observe(seconds.backward);
  families_->optimizer.Observe(seconds.optimizer);
  families_->whole_step_seconds.Observe(seconds.batch + seconds.forward + seconds.backward + seconds.optimizer);
  const absl::MutexLock lock(&families_->mu);
  families_->last_step.Set(UnixSeconds());
}

void JobMetrics::ObserveEpoch(absl::Duration duration) {
  families_->epoch_seconds.Observe(absl::ToDoubleSeconds(duration));
}

void JobMetrics::ObserveCheckpoint(absl::Duration duration) {
  families_->checkpoint_seconds.Observe(absl::ToDoubleSeconds(duration));
  const absl::MutexLock lock(&families_->mu);
  families_->checkpoint_timestamp.Set(UnixSeconds());
  families_->unsaved.emplace();
}

void JobMetrics::SetRunning(int64_t epoch, double loss, double graphs_per_second) {
  const absl::MutexLock lock(&families_->mu);
  if (!families_->unsaved) families_->unsaved.emplace();
  families_->epoch.Set(static_cast<double>(epoch));
  families_->loss.Set(loss);
  families_->graphs_per_second.Set(graphs_per_second);
}

void JobMetrics::SetIdle() {
  {
    const absl::MutexLock lock(&families_->mu);
    families_->unsaved.reset();
    for (MaybeGauge* gauge :
         {&families_->checkpoint_age, &families_->epoch, &families_->loss, &families_->graphs_per_second}) {
      gauge->Set(std::nullopt);
    }
  }
  SetLookAhead(std::nullopt);
}

void JobMetrics::SetLookAhead(const std::optional<LookAheadState>& state) {
  const absl::MutexLock lock(&families_->mu);
  using Value = std::optional<double>;
  families_->look_ahead_depth.Set(state ? Value(state->depth) : std::nullopt);
  families_->look_ahead_ready.Set(state ? Value(state->ready_batches) : std::nullopt);
  families_->look_ahead_resident.Set(state ? Value(state->resident_ratio) : std::nullopt);
}

void JobMetrics::AddLookAhead(const LookAheadCounts& increments) {
  families_->look_ahead_stalls.Increment(static_cast<double>(increments.stalls));
  families_->look_ahead_edges.Increment(static_cast<double>(increments.sampled_edges));
  families_->look_ahead_cut.Increment(static_cast<double>(increments.cut_batches));
  families_->look_ahead_pages.Increment(static_cast<double>(increments.wanted_pages));
  families_->look_ahead_advised.Increment(static_cast<double>(increments.advised_bytes));
  families_->look_ahead_faults.Increment(static_cast<double>(increments.major_faults));
}

void JobMetrics::BeforeScrape() {
  const absl::MutexLock lock(&families_->mu);
  if (families_->unsaved) families_->checkpoint_age.Set(absl::ToDoubleSeconds(families_->unsaved->Elapsed()));
}

}  // namespace permafrost::telemetry
