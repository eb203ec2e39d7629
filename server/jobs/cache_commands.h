// Graph caches of jobs: what they are, and the commands to them.
// Threads: all methods are safe anywhere. Borrows the book.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"
#include "jobs/job_book.h"
#include "jobs/run_context.h"

namespace permafrost::jobs {

class CacheCommands {
 public:
  using Done = CommandLog::Done;

  explicit CacheCommands(JobBook& book) : book_(book) {}

  // As JobManager's methods.
  absl::StatusOr<graphcache::Snapshot> Get(const JobId& id) const;
  absl::StatusOr<std::vector<graphcache::EntryInfo>> Entries(const JobId& id) const;
  void Command(const JobId& id, const graphcache::Command& command, const RequestKey& request, Done done);

 private:
  using Answer = std::optional<absl::StatusOr<graphcache::Snapshot>>;

  // Records a command; `active`: nullptr for a job that has ended. The answer, if it is known already; nullopt: `done`
  // was kept. In the caller's turn.
  Answer Record(const JobId& id, ActiveJob* active, graphcache::Command command, const RequestKey& request,
                const Done& done);
  absl::StatusOr<graphcache::Snapshot> RecordQueued(const ActiveJob& active, graphcache::Command command,
                                                    const RequestKey& request);

  JobBook& book_;
};

}  // namespace permafrost::jobs
