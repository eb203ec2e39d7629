#include "jobs/run_context.h"

#include <utility>

#include "jobs/job_log_text.h"

namespace permafrost::jobs {
namespace {

constexpr absl::Duration kStoreInterval = absl::Seconds(1);

telemetry::Severity ToSeverity(train::LogLevel level) {
  switch (level) {
    case train::LogLevel::kInfo:
      return telemetry::Severity::kInfo;
    case train::LogLevel::kWarning:
      return telemetry::Severity::kWarning;
    case train::LogLevel::kError:
      return telemetry::Severity::kError;
  }
  return telemetry::Severity::kError;
}

}  // namespace

JobRunContext::JobRunContext(const train::TrainOptions& options, bool resumed, const std::atomic<bool>& draining,
                             LiveRun& live, telemetry::JobLog& log, telemetry::JobMetrics& metrics, RunHooks hooks)
    : options_(options),
      draining_(draining),
      live_(live),
      log_(log),
      metrics_(metrics),
      hooks_(std::move(hooks)),
      counters_(resumed),
      last_store_(hooks_.now()) {}

train::StopRequest JobRunContext::stop_requested() const {
  if (live_.cancel_requested()) return train::StopRequest::kCancel;
  return draining_.load(std::memory_order_acquire) ? train::StopRequest::kDrain : train::StopRequest::kNone;
}

void JobRunContext::OnProgress(const train::Progress& progress) {
  live_.SetProgress(progress);
  const RunCounters::Increment increment = counters_.Advance(progress);
  metrics_.AddSteps(increment.counts);
  if (increment.step) metrics_.ObserveStep(*increment.step);
  metrics_.SetRunning(progress.epoch, progress.loss, progress.graphs_per_second);
  if (hooks_.now() - last_store_ >= kStoreInterval) StoreProgress();
  hooks_.notify();
}

void JobRunContext::OnEpoch(const train::EpochMetrics& metrics) {
  metrics_.ObserveEpoch(absl::Seconds(metrics.train_seconds + metrics.valid_seconds));
  hooks_.record_epoch(metrics);
  log_.Write(telemetry::Severity::kInfo, EpochLine(metrics, options_.epochs));
  StoreProgress();
  hooks_.notify();
}

void JobRunContext::OnCheckpoint(int64_t step, absl::Duration duration) {
  metrics_.ObserveCheckpoint(duration);
  train::Progress progress = live_.progress();
  progress.checkpoint_step = step;
  live_.SetProgress(progress);
  StoreProgress();
  hooks_.notify();
}

void JobRunContext::Log(train::LogLevel level, std::string_view line) {
  log_.Write(ToSeverity(level), line);
  hooks_.notify();
}

void JobRunContext::StoreProgress() {
  last_store_ = hooks_.now();
  hooks_.store_progress();
}

}  // namespace permafrost::jobs
