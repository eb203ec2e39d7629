#include "jobs/cache_commands.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::jobs {
namespace {

using graphcache::EntryInfo;
using graphcache::Snapshot;

// More than anyone steers by hand; each is read again at every start.
constexpr int64_t kMaxCommands = 100'000;

}  // namespace

absl::StatusOr<Snapshot> CacheCommands::Get(const JobId& id) const {
  if (std::optional<LiveRun::Cache> live = book_.LiveCache(id)) return std::move(live->snapshot);
  PF_ASSIGN_OR_RETURN(std::optional<Snapshot> stored, book_.store().GetGraphCache(id));
  if (stored) return *std::move(stored);
  PF_ASSIGN_OR_RETURN(const Job job, book_.store().Get(id, kNoEpochs));
  return NoStepYet(job.spec);
}

absl::StatusOr<std::vector<EntryInfo>> CacheCommands::Entries(const JobId& id) const {
  if (const std::optional<LiveRun::Cache> live = book_.LiveCache(id)) return *live->entries;
  return book_.store().GetGraphCacheEntries(id);
}

void CacheCommands::Command(const JobId& id, const graphcache::Command& command, const RequestKey& request, Done done) {
  absl::StatusOr<JobBook::Turn> turn = book_.TakeTurn();
  if (!turn.ok()) return done(turn.status());
  const absl::StatusOr<bool> answered = book_.store().IsAnswered(request);
  Answer answer;
  if (!answered.ok()) {
    answer = answered.status();
  } else if (!*answered) {
    answer = Record(id, book_.FindActive(*turn, id), command, request, done);
  }
  // `done` may take locks, and what it tells may be told to many.
  turn->End();
  if (answer) return done(*std::move(answer));
  if (answered.value_or(false)) done(Get(id));
}

CacheCommands::Answer CacheCommands::Record(const JobId& id, ActiveJob* active, graphcache::Command command,
                                            const RequestKey& request, const Done& done) {
  if (active == nullptr) {
    const absl::StatusOr<Job> job = book_.store().Get(id, kNoEpochs);
    return Answer(job.ok() ? EndedError(*job) : job.status());
  }
  CommandLog& log = *active->commands;
  const CommandLog::State state = log.state();
  if (absl::Status sensible = graphcache::Check(command, state.options); !sensible.ok()) return Answer(sensible);
  if (state.newest >= kMaxCommands) {
    return Answer(
        WithReason(absl::ResourceExhaustedError(absl::StrCat("job ", id.value(), " has had ", state.newest,
                                                             " graph cache commands; accepted: at most ", kMaxCommands,
                                                             " a job: submit another job, whose cache takes as many")),
                   "TOO_MANY_COMMANDS", {{"job", id.value()}}));
  }
  command.sequence = state.newest + 1;
  command.step.reset();
  if (!active->live) return Answer(RecordQueued(*active, command, request));
  if (absl::Status stored = book_.store().PutCacheCommands(id, {command}, nullptr, request); !stored.ok()) {
    return Answer(stored);
  }
  if (log.Append(command, done)) return std::nullopt;
  return Answer(WithReason(absl::UnavailableError(absl::StrCat(
                               "job ", id.value(),
                               " has stopped and its end could not be stored: the command is on record and takes "
                               "effect when the job goes on")),
                           "SERVER_DRAINING", {{"job", id.value()}}));
}

absl::StatusOr<Snapshot> CacheCommands::RecordQueued(const ActiveJob& active, graphcache::Command command,
                                                     const RequestKey& request) {
  const Job& job = active.job;
  CommandLog& log = *active.commands;
  // The job goes on here, but not before a command that takes effect later: commands between a checkpoint and a crash
  // have their steps already. Commands that found no step boundary before a drain take effect there too, ahead of it.
  const int64_t step = std::max(log.state().last_step, job.progress.checkpoint_step);
  std::vector<graphcache::Command> changed = log.Unstamped();
  for (graphcache::Command& earlier : changed) earlier.step = step;
  const std::vector<graphcache::Command> stamped = changed;
  command.step = step;
  changed.push_back(command);
  PF_ASSIGN_OR_RETURN(const std::optional<Snapshot> stored, book_.store().GetGraphCache(job.id));
  Snapshot snapshot = stored.value_or(NoStepYet(job.spec));
  snapshot.options = graphcache::Updated(log.state().options, command.update);
  const graphcache::PolicyUpdate& update = command.update;
  // These thaw a running job's cache (GraphCache::UpdatePolicy).
  if (update.policy || update.freeze_at || update.shapes || update.rungs) {
    // A derived freeze point is not known before the run.
    snapshot.freeze_point = {.freeze_at = snapshot.options.freeze_at};
    snapshot.frozen = false;
    snapshot.armed = true;
  }
  snapshot.command_sequence = command.sequence;
  snapshot.command_step = step;
  PF_RETURN_IF_ERROR(book_.store().PutCacheCommands(job.id, changed, &snapshot, request));
  log.Stamp(stamped);
  log.Append(command, nullptr);
  book_.Notify(job.id);
  return snapshot;
}

}  // namespace permafrost::jobs
