// The job manager's half of graph caches: what they are, and the commands to them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "jobs/manager_impl.h"

namespace permafrost::jobs {
namespace {

using graphcache::Command;
using graphcache::EntryInfo;

// Of a job whose cache nobody told about yet.
graphcache::Snapshot NoStepYet(const JobSpec& spec) {
  graphcache::Snapshot snapshot;
  snapshot.options = spec.train.graph_cache;
  return snapshot;
}

int64_t LastStep(const std::vector<Command>& commands) {
  int64_t last = 0;
  for (const Command& command : commands) last = std::max(last, command.step.value_or(0));
  return last;
}

}  // namespace

std::optional<LiveRun::Cache> JobManagerImpl::LiveCache(const JobId& id) const {
  absl::MutexLock lock(&mu_);
  const auto it = active_.find(id);
  if (it == active_.end() || !it->second.live) return std::nullopt;
  return it->second.live->cache();
}

absl::StatusOr<graphcache::Snapshot> JobManagerImpl::GetGraphCache(const JobId& id) const {
  if (std::optional<LiveRun::Cache> live = LiveCache(id)) return std::move(live->snapshot);
  PF_ASSIGN_OR_RETURN(std::optional<graphcache::Snapshot> stored, store_->GetGraphCache(id));
  if (stored) return *std::move(stored);
  PF_ASSIGN_OR_RETURN(const Job job, store_->Get(id));
  return NoStepYet(job.spec);
}

absl::StatusOr<std::vector<EntryInfo>> JobManagerImpl::GraphCacheEntries(const JobId& id) const {
  if (const std::optional<LiveRun::Cache> live = LiveCache(id)) return *live->entries;
  return store_->GetGraphCacheEntries(id);
}

absl::StatusOr<std::shared_ptr<LiveRun>> JobManagerImpl::MakeLiveRun(const Job& job) const {
  PF_ASSIGN_OR_RETURN(std::vector<Command> commands, store_->GetCacheCommands(job.id));
  LiveRun::Cache cache;
  cache.snapshot = NoStepYet(job.spec);
  const auto stored = store_->GetGraphCache(job.id);
  const auto entries = store_->GetGraphCacheEntries(job.id);
  if (stored.ok() && entries.ok()) {
    if (*stored) cache = {**stored, std::make_shared<const std::vector<EntryInfo>>(*entries)};
  } else {
    // Only what is shown until the run's first step; the run's own are in its checkpoint.
    const absl::Status& error = stored.ok() ? entries.status() : stored.status();
    telemetry::Log(telemetry::Severity::kWarning, StdView(error.message()));
  }
  auto live = std::make_shared<LiveRun>(std::move(cache), std::move(commands));
  live->SetProgress(job.progress);
  return live;
}

void JobManagerImpl::CommandGraphCache(const JobId& id, const Command& command, CommandDone done) {
  std::optional<absl::StatusOr<graphcache::Snapshot>> answer;
  {
    absl::MutexLock lock(&mu_);
    if (const auto it = active_.find(id); it != active_.end()) {
      answer = Record(it->second, command, done);
    } else if (const absl::StatusOr<Job> job = store_->Get(id); !job.ok()) {
      answer = job.status();
    } else {
      answer = WithReason(absl::FailedPreconditionError(absl::StrCat("job ", id.value(), " has already ",
                                                                     AbslView(kJobStateNames.Name(job->state)))),
                          "JOB_ENDED", {{"job", id.value()}});
    }
  }
  if (answer) done(*std::move(answer));
}

std::optional<absl::StatusOr<graphcache::Snapshot>> JobManagerImpl::Record(Active& active, Command command,
                                                                           const CommandDone& done) {
  const Job& job = active.job;
  std::vector<Command> commands;
  if (active.live) {
    commands = active.live->commands().commands();
  } else if (auto stored = store_->GetCacheCommands(job.id); stored.ok()) {
    commands = *std::move(stored);
  } else {
    return stored.status();
  }
  if (absl::Status sensible = graphcache::Check(command, OptionsAfter(job.spec.train.graph_cache, commands));
      !sensible.ok()) {
    return sensible;
  }
  command.sequence = commands.empty() ? 1 : commands.back().sequence + 1;
  command.step.reset();
  if (!active.live) return RecordQueued(job, command, std::move(commands));
  if (absl::Status stored = store_->PutCacheCommands(job.id, {command}, nullptr); !stored.ok()) return stored;
  if (active.live->commands().Append(command, done)) return std::nullopt;
  return WithReason(absl::UnavailableError(absl::StrCat("job ", job.id.value(),
                                                        " has stopped and its end could not be stored: the command is "
                                                        "on record and takes effect when the job goes on")),
                    "SERVER_DRAINING", {{"job", job.id.value()}});
}

absl::StatusOr<graphcache::Snapshot> JobManagerImpl::RecordQueued(const Job& job, const Command& command,
                                                                  std::vector<Command> commands) {
  commands.push_back(command);
  // Where the job goes on, but not before a command that takes effect later: those between a checkpoint and a crash
  // have their steps already. Those that found no step boundary before a drain take effect there too, ahead of it.
  const int64_t step = std::max(LastStep(commands), job.progress.checkpoint_step);
  std::vector<Command> changed;
  for (Command& c : commands) {
    if (c.step) continue;
    c.step = step;
    changed.push_back(c);
  }
  auto stored = store_->GetGraphCache(job.id);
  if (!stored.ok()) return stored.status();
  graphcache::Snapshot snapshot = stored->value_or(NoStepYet(job.spec));
  snapshot.options = OptionsAfter(job.spec.train.graph_cache, commands);
  if (command.update.policy || command.update.freeze_at) {
    // A derived freeze point is not known before the run.
    snapshot.freeze_point = {.freeze_at = snapshot.options.freeze_at};
    snapshot.frozen = false;
    snapshot.armed = true;
  }
  snapshot.command_sequence = command.sequence;
  snapshot.command_step = step;
  PF_RETURN_IF_ERROR(store_->PutCacheCommands(job.id, changed, &snapshot));
  hub_.Notify(job.id.value());
  return snapshot;
}

absl::Status JobManagerImpl::SaveGraphCache(Active& active) {
  if (!active.live) return absl::OkStatus();
  const LiveRun::Cache cache = active.live->cache();
  const bool changed = cache.entries != active.stored_entries;
  const absl::Status stored =
      store_->PutGraphCache(active.job.id, cache.snapshot, changed ? cache.entries.get() : nullptr);
  if (!stored.ok()) return Annotate(stored, "graph cache");
  active.stored_entries = cache.entries;
  return absl::OkStatus();
}

}  // namespace permafrost::jobs
