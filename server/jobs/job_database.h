// The database file of the job store: its tables, its care before anything in it is changed, SQLite's errors as Status,
// and the connection to it.
// Threads: each call has the connection for itself. StoreConnection, RequestRows and Use throw SQLite::Exception.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "graphcache/snapshot.h"
#include "jobs/job.h"
#include "jobs/job_store.h"

struct sqlite3;

namespace permafrost::jobs {

// Sets the connection up and brings its file to the present schema, from nothing or from an older one; of two processes
// that do so at once one waits. An older one is copied to FILE.vVERSION-backup first (-backup-2 and so on where that is
// there), on disk before anything of it changes. FailedPrecondition for a schema version that is not known; DataLoss,
// with nothing changed, for a file that SQLite's own check finds damaged. Throws SQLite::Exception.
absl::Status PrepareDatabase(SQLite::Database& database);

// True if reading, writing, truncating or syncing the database or its log failed. The errno that SQLite keeps for a
// file (SQLITE_FCNTL_LAST_ERRNO) then belongs to this error and to no other one.
bool IsOfFileBytes(const SQLite::Exception& error);
// The errno behind an error that `database` just met; 0: not known.
int SystemErrorOf(sqlite3* database, const SQLite::Exception& met);
// The errno that keeps SQLite from opening `file`; 0: nothing does, or it is not known.
int WhyNotOpened(const std::string& file);

// `file`: named in the message. `system_error`: the errno behind it, which an I/O error's message ends with; 0:
// unknown. Unavailable where that says that nothing may be written just now, or that descriptors or memory are lacking.
absl::Status ToStatus(const std::string& file, const SQLite::Exception& error, int system_error = 0);

// SQLite's quick_check; of a small file its integrity_check, which compares indices with their tables too. DataLoss,
// naming the file, the first finding and where there may be a good copy. Throws SQLite::Exception.
absl::Status CheckDatabase(SQLite::Database& database);

// A copy of a database of a version between 1 and `newest` beside it, on disk when Ok; never in place of another one.
// Nothing for any other version, as for a new file. Errors: those of the disk. Throws SQLite::Exception.
absl::Status BackUpBeforeMigration(SQLite::Database& database, int newest);

// Returns NotFound with the reason JOB_NOT_FOUND.
absl::Status JobNotFound(const JobId& id);

// A prepared statement for one use: reset when done, or it would keep its read lock on the file.
class Use {
 public:
  explicit Use(SQLite::Statement& statement) : statement_(statement) {}
  Use(const Use&) = delete;
  ~Use() { statement_.tryReset(); }
  SQLite::Statement* operator->() { return &statement_; }
  SQLite::Statement& operator*() { return statement_; }

 private:
  SQLite::Statement& statement_;
};

// Calls that were begun or answered, by their `request_id`. They are rows of the table answered_requests, one a call;
// the newest JobStore::kMaxRequests are kept.
class RequestRows {
 public:
  // Borrows the database.
  explicit RequestRows(SQLite::Database& database);

  // Inserts, or replaces what is said of the call: it stays as old as it was. An empty id: nothing.
  void Put(const RequestKey& request, const RequestRecord& record);
  void Drop(const std::string& request_id);
  // Both do what JobStore's methods of these names do.
  absl::StatusOr<std::optional<RequestRecord>> Find(const RequestKey& request);
  absl::StatusOr<std::optional<Creation>> FindCreation(const std::string& request_id);
  // A CreateJob that made `job`.
  void PutCreation(const std::string& request_id, const std::string& asked, const JobId& job);
  // The same call, from now on as the newest. One that is not kept any more is put anew, without what it asked for.
  void RenewCreation(const std::string& request_id, const JobId& job);

 private:
  struct Row {
    std::string what;
    RequestRecord record;
  };
  std::optional<Row> FindRow(const std::string& request_id);

  SQLite::Database& database_;
  SQLite::Statement update_, insert_, trim_, drop_, select_;
};

// The connection of a job store to its database, with its statements and its rows of requests.
// Threads: one call at a time.
struct StoreConnection {
  // `prepared`: see PrepareDatabase.
  explicit StoreConnection(SQLite::Database prepared);

  // Returns whether `by` finds a row by `key`.
  static bool Has(SQLite::Statement& by, const std::string& key);
  // The request_id that a job was created with; empty: none, or there is no such job.
  std::string RequestOf(const JobId& id);
  // The job that `by` finds by `key`, with the first kMostEpochs of its epochs after `after_epoch`.
  std::optional<Job> Find(SQLite::Statement& by, const std::string& key, int64_t after_epoch);
  // Inserts or replaces the snapshot of the job's graph cache. Errors: JobNotFound.
  absl::Status PutCache(const JobId& id, const graphcache::Snapshot& snapshot);

  SQLite::Database database;
  SQLite::Statement insert, update, describe, put_epoch, by_id, by_request, request_of, epochs, list, erase,
      last_sequence;
  SQLite::Statement put_cache, put_entries, cache, entries, put_command, commands;
  RequestRows requests;
};

}  // namespace permafrost::jobs
