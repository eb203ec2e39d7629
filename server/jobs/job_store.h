// Jobs in SQLite (WAL, synchronous=FULL): what a method returned Ok for survives the death of the process.
// Threads: all methods are safe anywhere; one connection under one lock. While another process writes to the file,
// methods that write wait for as long as the thread's Patience allows, and at most five seconds without one. Then they
// fail with nothing done: Unavailable, or Cancelled if nobody waits for it any more. Methods that only read go on.
// Specs, progress, results, graph caches and commands are JSON columns, so that a new field needs no migration; the
// schema version is checked, and an older one brought up to date.
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

// A call that changed something, by the id that its client gave it; an empty id: none.
struct RequestKey {
  std::string id;
  std::string what;  // the call and all that it asked for, to tell another one of the same id
};

// The record of one request.
struct RequestRecord {
  bool answered = true;  // else begun, and by what is known not done
  std::string subject;   // what it was about
};

// The record of a CreateJob that had a request_id.
struct Creation {
  JobId job;
  std::string asked;  // all that it asked for, hashed; empty: not known, as of versions before there was one
};

// Most epochs that are read or copied under a lock, since a job may have a million.
inline constexpr size_t kMostEpochs = 1'000;
// As `after_epoch`: no epochs.
inline constexpr int64_t kNoEpochs = std::numeric_limits<int64_t>::max();

// Returns the job with all epochs after `after_epoch`. `get` gives the first kMostEpochs after the epoch that it is
// given. Everything but the epochs is from the moment of the last piece.
absl::StatusOr<Job> GetInPieces(int64_t after_epoch,
                                const std::function<absl::StatusOr<Job>(int64_t after_epoch)>& get);

struct ListOptions {
  int64_t page_size = 50;                  // 1..1000
  std::optional<int64_t> before_sequence;  // only older ones: where the last page ended
  std::vector<JobState> states;            // empty: all
};

class JobStore {
 public:
  // Creates or opens `path`. FailedPrecondition for a schema version that is not known.
  // `on_error` is told of each statement that cannot be executed from then on, under the store's lock.
  static absl::StatusOr<std::unique_ptr<JobStore>> Open(
      const std::filesystem::path& path, std::function<void()> on_error = [] {});
  virtual ~JobStore() = default;

  // True while some call waits for another process that writes to the file.
  virtual bool waits_for_lock() const { return false; }

  // Sets job.sequence. AlreadyExists (reason JOB_ALREADY_EXISTS) for a taken id. The job's request_id is on record too,
  // with `asked` (Creation).
  virtual absl::Status Insert(Job& job, const std::string& asked) = 0;
  absl::Status Insert(Job& job) { return Insert(job, ""); }
  // All of it but spec, labels and epochs.
  // `request`, here and below: on record in the same transaction.
  virtual absl::Status Update(const Job& job, const RequestKey& request) = 0;
  absl::Status Update(const Job& job) { return Update(job, {}); }
  // Spec and labels.
  virtual absl::Status Describe(const Job& job, const RequestKey& request) = 0;
  absl::Status Describe(const Job& job) { return Describe(job, {}); }
  // Stores all or none. Each is inserted or replaced.
  virtual absl::Status PutEpochs(const JobId& id, const std::deque<train::EpochMetrics>& epochs) = 0;
  // With the first kMostEpochs of its epochs after `after_epoch`. NotFound, reason JOB_NOT_FOUND. A job whose record
  // cannot be read is given as far as it can be (Job::unreadable), here and below.
  virtual absl::StatusOr<Job> Get(const JobId& id, int64_t after_epoch) const = 0;
  // Returns the job with all epochs, read piece by piece.
  absl::StatusOr<Job> Get(const JobId& id) const;
  // Returns the job without epochs.
  virtual absl::StatusOr<std::optional<Job>> FindByRequestId(const std::string& request_id) const = 0;
  // Newest first, without epochs. `states` are those on record.
  virtual absl::StatusOr<std::vector<Job>> List(const ListOptions& options) const = 0;
  // With its epochs, graph cache and commands. The request_id that it was created with stays on record.
  virtual absl::Status Delete(const JobId& id, const RequestKey& request) = 0;
  absl::Status Delete(const JobId& id) { return Delete(id, {}); }
  // The largest sequence that a job was ever inserted with, also where it is deleted since; 0: none was.
  virtual absl::StatusOr<int64_t> LastSequence() const = 0;
  // Returns the record of this request, if it is one of the kMaxRequests newest; nullopt: there is none, or the id is
  // empty. AlreadyExists, reason REQUEST_ID_REUSED, if another call has its id.
  static constexpr int64_t kMaxRequests = 10'000;
  virtual absl::StatusOr<std::optional<RequestRecord>> FindRequest(const RequestKey& request) const = 0;
  // The CreateJob of this id, though its job was deleted since. Errors: as FindRequest.
  virtual absl::StatusOr<std::optional<Creation>> FindCreation(const std::string& request_id) const = 0;
  // True if it is on record as answered. Errors: as FindRequest.
  absl::StatusOr<bool> IsAnswered(const RequestKey& request) const;
  // Inserts or replaces. For calls that change nothing else in this store.
  virtual absl::Status PutRequest(const RequestKey& request, const RequestRecord& record) = 0;
  virtual absl::Status DropRequest(const std::string& request_id) = 0;

  // Inserts or replaces. `entries`: nullptr leaves those stored before.
  virtual absl::Status PutGraphCache(const JobId& id, const graphcache::Snapshot& snapshot,
                                     const std::vector<graphcache::EntryInfo>* entries) = 0;
  // nullopt where none was put yet.
  virtual absl::StatusOr<std::optional<graphcache::Snapshot>> GetGraphCache(const JobId& id) const = 0;
  virtual absl::StatusOr<std::vector<graphcache::EntryInfo>> GetGraphCacheEntries(const JobId& id) const = 0;
  // All or none: each is inserted, or replaces the one of its sequence; the snapshot as by PutGraphCache, if given.
  virtual absl::Status PutCacheCommands(const JobId& id, const std::vector<graphcache::Command>& commands,
                                        const graphcache::Snapshot* snapshot, const RequestKey& request) = 0;
  absl::Status PutCacheCommands(const JobId& id, const std::vector<graphcache::Command>& commands,
                                const graphcache::Snapshot* snapshot) {
    return PutCacheCommands(id, commands, snapshot, {});
  }
  // In order of their sequence; none for a job that does not exist.
  virtual absl::StatusOr<std::vector<graphcache::Command>> GetCacheCommands(const JobId& id) const = 0;
};

}  // namespace permafrost::jobs
