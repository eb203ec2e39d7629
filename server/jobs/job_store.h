// Stores jobs in SQLite (WAL, synchronous=FULL). Once a method has returned Ok, its change survives the death of the
// process.
// Threads: all methods are safe anywhere; they share one connection under one lock. While another process writes to
// the file, a method that writes waits as long as the thread's Patience allows, and five seconds at most. After this
// wait, it changes nothing and fails with Unavailable, or with Cancelled if nobody wants the change any more. Methods
// that only read do not wait.
// Specs, progress, results, graph caches and commands are JSON columns, so a new field needs no migration. Opening
// checks the schema version, and migrates a file of an older one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"
#include "jobs/job.h"

namespace permafrost::jobs {

// Identifies a call that changed something. An empty id stands for no call.
struct RequestKey {
  std::string id;
  std::string what;  // the call and its arguments, to detect another call with the same id
};

// The record of one request.
struct RequestRecord {
  bool answered = true;  // false if the request was begun, and is not known to be done
  std::string subject;   // what the request was about
};

// The record of a CreateJob that had a request_id.
struct Creation {
  JobId job;
  std::string asked;  // hash of all that the call asked for; empty if an older version made the record
};

// The most epochs that are read or copied under a lock, since a job may have a million.
inline constexpr size_t kMostEpochs = 1'000;
// A value for `after_epoch` that selects no epochs.
inline constexpr int64_t kNoEpochs = std::numeric_limits<int64_t>::max();

// Returns the job with all epochs after `after_epoch`. `get` must return the job with its first kMostEpochs epochs
// after the given epoch. All other fields of the result come from the last call of `get`.
absl::StatusOr<Job> GetInPieces(int64_t after_epoch,
                                const std::function<absl::StatusOr<Job>(int64_t after_epoch)>& get);

struct ListOptions {
  int64_t page_size = 50;                  // 1..1000
  std::optional<int64_t> before_sequence;  // only jobs older than this one, the last of the previous page
  std::vector<JobState> states;            // empty: all
};

class JobStore {
 public:
  // Creates or opens the file `path`. If a later statement cannot be executed, calls `on_error` under the store's
  // lock. Errors: FailedPrecondition if the schema version is not known.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(
      const std::filesystem::path& path, std::function<void()> on_error = [] {});
  virtual ~JobStore() = default;

  // Returns true while a call waits for another process that writes to the file.
  virtual bool waits_for_lock() const { return false; }

  // Inserts a job and sets job.sequence. Records the job's request_id too, with `asked` (Creation). Errors:
  // AlreadyExists (reason JOB_ALREADY_EXISTS) if the id is taken.
  virtual absl::Status Insert(Job& job, const std::string& asked) = 0;
  absl::Status Insert(Job& job) { return Insert(job, ""); }
  // Updates a job, except its spec, labels and epochs. Here and below, `request` is recorded in the same transaction
  // as the change.
  virtual absl::Status Update(const Job& job, const RequestKey& request) = 0;
  absl::Status Update(const Job& job) { return Update(job, {}); }
  // Updates a job's spec and labels.
  virtual absl::Status Describe(const Job& job, const RequestKey& request) = 0;
  absl::Status Describe(const Job& job) { return Describe(job, {}); }
  // Inserts or replaces epochs: all of them or none.
  virtual absl::Status PutEpochs(const JobId& id, const std::deque<train::EpochMetrics>& epochs) = 0;
  // Returns the job with its first kMostEpochs epochs after `after_epoch`. Here and below, if a part of a record
  // cannot be read, the rest is returned (Job::unreadable). Errors: NotFound, reason JOB_NOT_FOUND.
  virtual absl::StatusOr<Job> Get(const JobId& id, int64_t after_epoch) const = 0;
  // Returns the job with all epochs, read piece by piece.
  absl::StatusOr<Job> Get(const JobId& id) const;
  // Returns the job that was created with this request_id, without epochs.
  virtual absl::StatusOr<std::optional<Job>> FindByRequestId(const std::string& request_id) const = 0;
  // Returns jobs without epochs, newest first. `states` selects by the states in the store.
  virtual absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const = 0;
  // Deletes a job with its epochs, graph cache and commands. The record of the request that created the job stays.
  virtual absl::Status Delete(const JobId& id, const RequestKey& request) = 0;
  absl::Status Delete(const JobId& id) { return Delete(id, {}); }
  // Returns the largest sequence that a job ever had, deleted jobs included; 0: there was no job.
  virtual absl::StatusOr<int64_t> LastSequence() const = 0;
  // Returns the record of this request, if it is one of the kMaxRequests newest records. Returns nullopt if there is
  // none, or if the id is empty. Errors: AlreadyExists, reason REQUEST_ID_REUSED, if the id belongs to another call.
  static constexpr int64_t kMaxRequests = 10'000;
  virtual absl::StatusOr<std::optional<RequestRecord>> FindRequest(const RequestKey& request) const = 0;
  // Returns the record of the CreateJob with this request_id, even if its job was deleted since. Errors: same as
  // FindRequest.
  virtual absl::StatusOr<std::optional<Creation>> FindCreation(const std::string& request_id) const = 0;
  // Returns true if the request is on record as answered. Errors: same as FindRequest.
  absl::StatusOr<bool> IsAnswered(const RequestKey& request) const;
  // Inserts or replaces the record of a request. Use it for calls that change nothing else in this store.
  virtual absl::Status PutRequest(const RequestKey& request, const RequestRecord& record) = 0;
  virtual absl::Status DropRequest(const std::string& request_id) = 0;

  // Inserts or replaces the graph cache of a job. If `entries` is nullptr, the entries stored before stay.
  virtual absl::Status PutGraphCache(const JobId& id, const graphcache::Snapshot& snapshot,
                                     const std::vector<graphcache::EntryInfo>* entries) = 0;
  // Returns nullopt if no graph cache was put yet.
  virtual absl::StatusOr<std::optional<graphcache::Snapshot>> GetGraphCache(const JobId& id) const = 0;
  virtual absl::StatusOr<std::vector<graphcache::EntryInfo>> GetGraphCacheEntries(const JobId& id) const = 0;
  // Inserts commands, or replaces those with equal sequences: all or none. If `snapshot` is given, also stores it as
  // PutGraphCache does.
  virtual absl::Status PutCacheCommands(const JobId& id, const std::vector<graphcache::Command>& commands,
                                        const graphcache::Snapshot* snapshot, const RequestKey& request) = 0;
  absl::Status PutCacheCommands(const JobId& id, const std::vector<graphcache::Command>& commands,
                                const graphcache::Snapshot* snapshot) {
    return PutCacheCommands(id, commands, snapshot, {});
  }
  // Returns the commands in order of their sequence. Returns none if the job does not exist.
  virtual absl::StatusOr<std::vector<graphcache::Command>> GetCacheCommands(const JobId& id) const = 0;
};

}  // namespace permafrost::jobs
