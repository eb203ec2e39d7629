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

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/monotonic.h"
#include "telemetry/single_metric.h"

namespace permafrost::telemetry {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

constexpr std::string_view kFinishedStates[] = {"succeeded", "failed", "cancelled"};

// Seconds.
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

prometheus::Family<Histogram>& HistogramFamily(prometheus::Registry& registry, const char* name, const char* help) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry);
}

}  // namespace

// References into the registry, which owns every metric; all of them are safe to update anywhere.
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
        step_seconds(HistogramFamily(registry, "permafrost_train_step_seconds",
                                     "Time of a training step by phase, on the device's thread.")),
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
        checkpoint_timestamp(OneGauge(registry, "permafrost_checkpoint_timestamp_seconds",
                                      "Unix time of the newest checkpoint of this process, 0 before the first.")),
        checkpoint_age(OneGauge(registry, "permafrost_checkpoint_age_seconds",
                                "Time since the newest checkpoint of this process, 0 before the first.")),
        epoch(OneGauge(registry, "permafrost_train_epoch", "Epoch of the running job, from 1; 0 when none runs.")),
        loss(OneGauge(registry, "permafrost_train_loss",
                      "Mean training loss of the running job over its epoch so far; 0 when none runs.")),
        graphs_per_second(OneGauge(registry, "permafrost_train_graphs_per_second",
                                   "Training throughput of the running job; 0 when none runs.")),
        look_ahead_depth(OneGauge(registry, "permafrost_job_lookahead_depth",
                                  "Batches that the running job's sampler may be ahead; 0 when none samples.")),
        look_ahead_ready(OneGauge(registry, "permafrost_job_lookahead_ready_batches",
                                  "Sampled batches that wait for the running job's step.")),
        look_ahead_resident(OneGauge(registry, "permafrost_job_lookahead_resident_ratio",
                                     "Part of the wanted pages looked at that were in memory already, in this run.")),
        look_ahead_stalls(OneCounter(registry, "permafrost_job_lookahead_stalls_total",
                                     "Steps that had to wait for their sampled batch.")),
        look_ahead_edges(OneCounter(registry, "permafrost_job_lookahead_sampled_edges_total", "Edges sampled.")),
        look_ahead_pages(
            OneCounter(registry, "permafrost_job_lookahead_wanted_pages_total",
                       "Pages of large graphs that batches asked for, each once a batch; while all are found "
                       "in memory, one batch in eight asks.")),
        look_ahead_advised(OneCounter(registry, "permafrost_job_lookahead_advised_bytes_total",
                                      "Bytes of large graphs given to the kernel as needed soon.")),
        look_ahead_faults(OneCounter(registry, "permafrost_job_lookahead_major_faults_total",
                                     "Page faults of the process that read from disk while a job sampled.")) {}

  std::map<std::string, Gauge*, std::less<>> jobs;        // by state
  std::map<std::string, Counter*, std::less<>> finished;  // by state
  Histogram& queue_wait;
  Counter &resumes, &retries, &preemptions, &expired, &dropped_log_bytes, &failed_checkpoints, &failed_log_lines,
      &quarantined;
  Gauge& unreadable;
  Counter &steps, &graphs, &nodes, &edges, &padding_nodes, &padding_edges, &skipped_batches;
  prometheus::Family<Histogram>& step_seconds;
  Histogram &batch, &forward, &backward, &optimizer;
  Histogram &epoch_seconds, &checkpoint_seconds;
  Gauge &checkpoint_timestamp, &checkpoint_age;
  Gauge &epoch, &loss, &graphs_per_second;
  Gauge &look_ahead_depth, &look_ahead_ready, &look_ahead_resident;
  Counter &look_ahead_stalls, &look_ahead_edges, &look_ahead_pages, &look_ahead_advised, &look_ahead_faults;
  absl::Mutex mu;
  std::optional<Stopwatch> since_checkpoint ABSL_GUARDED_BY(mu);
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
}

JobMetrics::~JobMetrics() = default;

void JobMetrics::SetJobs(std::string_view state, int64_t count) {
  if (auto it = families_->jobs.find(state); it != families_->jobs.end()) it->second->Set(static_cast<double>(count));
}

void JobMetrics::ObserveQueueWait(absl::Duration wait) {
  // The wall clock may have been set back since the job was created.
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
}

void JobMetrics::ObserveStep(const StepSeconds& seconds) {
  families_->batch.Observe(seconds.batch);
  families_->forward.Observe(seconds.forward);
  families_->backward.Observe(seconds.backward);
  families_->optimizer.Observe(seconds.optimizer);
}

void JobMetrics::ObserveEpoch(absl::Duration duration) {
  families_->epoch_seconds.Observe(absl::ToDoubleSeconds(duration));
}

void JobMetrics::ObserveCheckpoint(absl::Duration duration) {
  families_->checkpoint_seconds.Observe(absl::ToDoubleSeconds(duration));
  families_->checkpoint_timestamp.Set(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  absl::MutexLock lock(&families_->mu);
  families_->since_checkpoint.emplace();
}

void JobMetrics::SetRunning(int64_t epoch, double loss, double graphs_per_second) {
  families_->epoch.Set(static_cast<double>(epoch));
  families_->loss.Set(loss);
  families_->graphs_per_second.Set(graphs_per_second);
}

void JobMetrics::SetLookAhead(const LookAheadState& state) {
  families_->look_ahead_depth.Set(static_cast<double>(state.depth));
  families_->look_ahead_ready.Set(static_cast<double>(state.ready_batches));
  families_->look_ahead_resident.Set(state.resident_ratio);
}

void JobMetrics::AddLookAhead(const LookAheadCounts& increments) {
  families_->look_ahead_stalls.Increment(static_cast<double>(increments.stalls));
  families_->look_ahead_edges.Increment(static_cast<double>(increments.sampled_edges));
  families_->look_ahead_pages.Increment(static_cast<double>(increments.wanted_pages));
  families_->look_ahead_advised.Increment(static_cast<double>(increments.advised_bytes));
  families_->look_ahead_faults.Increment(static_cast<double>(increments.major_faults));
}

void JobMetrics::BeforeScrape() {
  absl::MutexLock lock(&families_->mu);
  const std::optional<Stopwatch>& since = families_->since_checkpoint;
  families_->checkpoint_age.Set(since ? absl::ToDoubleSeconds(since->Elapsed()) : 0);
}

}  // namespace permafrost::telemetry
