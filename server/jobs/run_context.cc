#include "jobs/run_context.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "jobs/job_log_text.h"

namespace permafrost::jobs {
namespace {

constexpr absl::Duration kStoreInterval = absl::Seconds(1);
// The longest time that a checkpoint waits for another process's lock on the database. After this time, the
// checkpoint is put off.
constexpr absl::Duration kMostForACheckpoint = absl::Milliseconds(100);

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

DevicePhase PhaseOf(const train::Progress& progress) {
  if (progress.warm_up_total > 0) return DevicePhase::kWarmingUp;
  const bool epoch_done = progress.steps_per_epoch > 0 && progress.step_in_epoch >= progress.steps_per_epoch;
  return epoch_done ? DevicePhase::kEvaluating : DevicePhase::kTraining;
}

}  // namespace

CommandLog::CommandLog(const spec::PolicyOptions& spec, std::vector<graphcache::Command> commands)
    : newest_(commands.empty() ? 0 : commands.back().sequence), commands_(std::move(commands)), options_(spec) {
  for (const graphcache::Command& command : commands_) options_ = graphcache::Updated(options_, command.update);
}

CommandLog::State CommandLog::state() const {
  absl::MutexLock lock(&mu_);
  State state{options_, newest_.load(std::memory_order_relaxed), 0};
  // Steps rise, and commands without a step come last.
  for (auto it = commands_.rbegin(); it != commands_.rend() && state.last_step == 0; ++it) {
    state.last_step = it->step.value_or(0);
  }
  return state;
}

std::vector<graphcache::Command> CommandLog::Unstamped() const {
  absl::MutexLock lock(&mu_);
  auto first = commands_.end();
  while (first != commands_.begin() && !std::prev(first)->step) --first;
  return {first, commands_.end()};
}

bool CommandLog::Append(const graphcache::Command& command, Done done) {
  absl::MutexLock lock(&mu_);
  commands_.push_back(command);
  options_ = graphcache::Updated(options_, command.update);
  // Stores the number after the command is added, so that a thread which sees the number also finds the command.
  newest_.store(command.sequence, std::memory_order_release);
  if (closed_) return false;
  if (done) waiting_.emplace_back(command.sequence, std::move(done));
  return true;
}

std::vector<graphcache::Command> CommandLog::Due(int64_t after_sequence, int64_t step) const {
  absl::MutexLock lock(&mu_);
  std::vector<graphcache::Command> due;
  for (auto it = std::ranges::upper_bound(commands_, after_sequence, {}, &graphcache::Command::sequence);
       it != commands_.end(); ++it) {
    if (it->step && *it->step > step) break;
    due.push_back(*it);
  }
  return due;
}

void CommandLog::Stamp(const std::vector<graphcache::Command>& stamped) {
  absl::MutexLock lock(&mu_);
  for (const graphcache::Command& command : stamped) {
    std::ranges::lower_bound(commands_, command.sequence, {}, &graphcache::Command::sequence)->step = command.step;
  }
}

std::vector<CommandLog::Done> CommandLog::TakeWaiting(int64_t sequence) {
  absl::MutexLock lock(&mu_);
  const auto end = std::ranges::upper_bound(waiting_, sequence, {}, &std::pair<int64_t, Done>::first);
  std::vector<Done> taken;
  for (auto it = waiting_.begin(); it != end; ++it) taken.push_back(std::move(it->second));
  waiting_.erase(waiting_.begin(), end);
  return taken;
}

std::vector<CommandLog::Done> CommandLog::Close() {
  {
    absl::MutexLock lock(&mu_);
    closed_ = true;
  }
  return TakeWaiting(std::numeric_limits<int64_t>::max());
}

void CommandLog::Open() {
  absl::MutexLock lock(&mu_);
  closed_ = false;
}

JobRunContext::JobRunContext(const spec::TrainOptions& options, bool resumed, const std::atomic<bool>& draining,
                             LiveRun& live, telemetry::JobLog& log, const RunMetrics& metrics, RunHooks hooks)
    : options_(options),
      draining_(draining),
      live_(live),
      log_(log),
      metrics_(metrics),
      hooks_(std::move(hooks)),
      counters_(resumed),
      cache_counters_(resumed),
      last_store_(hooks_.now()) {}

void JobRunContext::Move() const {
  if (hooks_.activity != nullptr) hooks_.activity->Move();
}

void JobRunContext::Enter(DevicePhase phase) const {
  if (hooks_.activity != nullptr) hooks_.activity->Enter(phase, step_);
}

train::StopRequest JobRunContext::stop_requested() const {
  Move();
  if (live_.cancel_requested()) {
    live_.SetStopSeen();
    return train::StopRequest::kCancel;
  }
  // All stops other than a cancel are a drain for the run; the job goes on later. If the run was told to stop before,
  // it must not be told to continue, since it may have left an evaluation half done.
  if (live_.stop_seen()) return train::StopRequest::kDrain;
  if (!live_.pause_requested() && !live_.is_preempted() && !draining_.load(std::memory_order_acquire) &&
      live_.passed_limit() == Limit::kNone) {
    return train::StopRequest::kNone;
  }
  live_.SetStopSeen();
  return train::StopRequest::kDrain;
}

void JobRunContext::AdvanceTo(JobState state) {
  if (state_ == JobState::kRunning || state_ == state || hooks_.now() < next_advance_) return;
  const Patience none(absl::ZeroDuration());
  if (hooks_.advance(state)) {
    state_ = state;
  } else {
    next_advance_ = hooks_.now() + kStoreInterval;
  }
}

void JobRunContext::OnProgress(const train::Progress& progress) {
  step_ = progress.step;
  Enter(PhaseOf(progress));
  live_.SetProgress(progress);
  const RunCounters::Increment increment = counters_.Advance(progress);
  metrics_.job.AddSteps(increment.counts);
  if (increment.step) {
    metrics_.job.ObserveStep(*increment.step);
    AdvanceTo(JobState::kRunning);
  } else if (progress.warm_up_total > 0) {
    AdvanceTo(JobState::kWarmingUp);
  }
  metrics_.job.SetRunning(progress.epoch, progress.loss, progress.graphs_per_second);
  metrics_.job.AddLookAhead(increment.look_ahead);
  metrics_.job.SetLookAhead(RunCounters::StateOf(progress.look_ahead));
  metrics_.job.features().Add(increment.features);
  metrics_.job.features().Set(RunCounters::FeaturesOf(progress.look_ahead));
  hooks_.mark_step(progress.step);
  StoreNowAndThen();
  hooks_.notify();
}

void JobRunContext::OnGraphCache(const graphcache::Snapshot& snapshot, LiveRun::Entries entries) {
  Move();
  live_.SetCache(snapshot, std::move(entries));
  const auto increments = cache_counters_.Advance(snapshot);
  for (size_t mode = 0; mode < increments.size(); ++mode) {
    metrics_.graph_cache.Add(mode, increments[mode]);
    // A resumed run may begin with an evaluation, whose steps OnProgress does not report.
    if (increments[mode].steps > 0) AdvanceTo(JobState::kRunning);
  }
  metrics_.graph_cache.SetRunning(ToMetrics(snapshot));
  for (const CommandLog::Done& done : live_.commands().TakeWaiting(snapshot.command_sequence)) done(snapshot);
  hooks_.notify();
}

std::vector<graphcache::Command> JobRunContext::TakeCacheCommands(int64_t after_sequence, int64_t step) {
  if (live_.commands().newest() <= after_sequence) return {};
  std::vector<graphcache::Command> due = live_.commands().Due(after_sequence, step);
  // While the job waited, a command may have got the step of an older checkpoint than the one from which the run
  // resumed. That command never took effect. It takes effect now, and the record must say so.
  const auto has_this_step = [step](const graphcache::Command& command) { return command.step == step; };
  const auto pending = std::ranges::find_if_not(due, has_this_step);
  if (pending == due.end()) return due;
  const absl::Duration now = hooks_.now();
  if (now >= next_stamp_) {
    std::vector<graphcache::Command> stamped(pending, due.end());
    for (graphcache::Command& command : stamped) command.step = step;
    const Patience none(absl::ZeroDuration());
    const absl::Status stored = hooks_.store_commands(stamped);
    if (stored.ok()) {
      live_.commands().Stamp(stamped);
      std::ranges::copy(stamped, pending);
      return due;
    }
    // A command must not take effect before its step is on record. Otherwise a resumed run would apply it at another
    // step.
    next_stamp_ = now + kStoreInterval;
    Log(train::LogLevel::kWarning,
        absl::StrCat("graph cache command ", stamped.front().sequence, " waits: ", stored.message()));
  }
  due.erase(pending, due.end());
  return due;
}

void JobRunContext::OnEpoch(const train::EpochMetrics& metrics) {
  metrics_.job.ObserveEpoch(absl::Seconds(metrics.train_seconds + metrics.valid_seconds));
  hooks_.record_epoch(metrics);
  log_.Write(telemetry::Severity::kInfo, EpochLine(metrics, options_));
  // Does not store each epoch at once, because an epoch of a small graph may be as short as a step.
  StoreNowAndThen();
  hooks_.notify();
}

absl::Status JobRunContext::StoreEpochs(bool is_last) {
  Enter(DevicePhase::kCheckpoint);
  // The last checkpoint may wait for a lock. Without it, the next run would repeat all steps since the previous
  // checkpoint.
  std::optional<Patience> short_one;
  if (!is_last) short_one.emplace(kMostForACheckpoint);
  // The error counts as transient, like an error of the checkpoint itself: epochs and checkpoint are on the same
  // disk, and the cause may pass.
  const absl::Status stored = hooks_.store_epochs();
  return stored.ok() ? stored : AsTransient(stored);
}

void JobRunContext::OnCheckpoint(int64_t step, absl::Duration duration) {
  metrics_.job.ObserveCheckpoint(duration);
  if (!live_.trouble().error.empty()) {
    log_.Write(telemetry::Severity::kInfo, absl::StrCat("the checkpoint of step ", step, " is written"));
  }
  live_.SetTrouble(absl::OkStatus());
  Enter(DevicePhase::kTraining);
  last_store_ = hooks_.now();
  const Patience none(absl::ZeroDuration());
  if (!hooks_.store_progress().ok()) hooks_.store_soon();
  hooks_.notify();
}

void JobRunContext::OnCheckpointFailed(const absl::Status& error) {
  Enter(DevicePhase::kTraining);
  metrics_.job.CountFailedCheckpoint();
  live_.SetTrouble(error);
  Log(train::LogLevel::kWarning,
      absl::StrCat("no checkpoint could be written; training goes on and it is tried again: ", error.message()));
}

void JobRunContext::Log(train::LogLevel level, std::string_view line) {
  log_.Write(ToSeverity(level), line);
  hooks_.notify();
}

void JobRunContext::StoreNowAndThen() {
  if (hooks_.now() - last_store_ < kStoreInterval) return;
  last_store_ = hooks_.now();
  hooks_.store_soon();
}

namespace {

constexpr absl::Duration kStoreAgain = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<RunWriter>> RunWriter::Start(std::string what, std::function<absl::Status()> store) {
  std::unique_ptr<RunWriter> writer(new RunWriter(std::move(what), std::move(store)));
  try {
    writer->thread_ = std::thread([raw = writer.get()] { raw->Loop(); });
  } catch (const std::system_error& error) {
    return absl::UnavailableError(
        absl::StrCat(writer->what_, " needs a thread, and the system gives none: ", error.what()));
  }
  return writer;
}

RunWriter::~RunWriter() {
  stop_.Set();
  wake_.Set();
  if (thread_.joinable()) thread_.join();
}

void RunWriter::Loop() {
  // This thread does not wait for another process's lock, because the run's end and other changes of jobs would wait
  // for this thread. The next try shows whether the database is free.
  const Patience none(absl::ZeroDuration());
  bool told = false;
  while (true) {
    wake_.Wait();
    if (stop_.is_set()) return;
    wake_.Reset();
    const absl::Status stored = store_();
    if (!stored.ok() && !told) {
      telemetry::Log(telemetry::Severity::kWarning,
                     absl::StrCat(what_, " is not stored yet, which is tried again: ", stored.message()));
    }
    told = !stored.ok();
    if (stored.ok()) continue;
    if (stop_.WaitFor(kStoreAgain)) return;
    wake_.Set();
  }
}

}  // namespace permafrost::jobs
