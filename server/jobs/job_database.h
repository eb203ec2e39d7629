// The database file of the job store: its tables, its connection, and SQLite's errors as Status. Before a file is
// changed, it is checked and copied.
// Threads: no other thread may use the connection during a call. StoreConnection, RequestRows and Use throw
// SQLite::Exception.
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

// Sets up the connection, and migrates an empty file or one of an older schema to the present schema. If two
// processes do so at once, one waits. A file of an older schema is first copied to FILE.vVERSION-backup; if that
// exists, to -backup-2 and so on. The copy is on disk before the file changes. Throws SQLite::Exception. Errors:
// FailedPrecondition for an unknown schema version; DataLoss, with nothing changed, if SQLite's check finds damage.
absl::Status PrepareDatabase(SQLite::Database& database);

// Returns true if the database or its log could not be read, written, truncated or synced. Only for such an error
// does SQLite keep the errno of the file (SQLITE_FCNTL_LAST_ERRNO).
bool IsOfFileBytes(const SQLite::Exception& error);
// Returns the errno that caused `met`, an error that has just occurred on `database`; 0: not known.
int SystemErrorOf(sqlite3* database, const SQLite::Exception& met);
// Returns the errno with which SQLite fails to open `file`; 0: SQLite can open the file, or the errno is not known.
int WhyNotOpened(const std::string& file);

// Turns an exception into a Status whose message names `file`. `system_error` is the errno that caused the exception,
// or 0 if unknown; the message of an I/O error ends with it. If the errno says that the file cannot be written just
// now, or that descriptors or memory are lacking, returns Unavailable.
absl::Status ToStatus(const std::string& file, const SQLite::Exception& error, int system_error = 0);

// Runs SQLite's quick_check. On a small file, runs integrity_check instead, which also compares indices with their
// tables. Throws SQLite::Exception. Errors: DataLoss, naming the file, the first finding, and places where a good
// copy may be.
absl::Status CheckDatabase(SQLite::Database& database);

// If the schema version is at least 1 and below `newest`, copies the database to a file beside it. After Ok, the copy
// is on disk. Replaces no file. Does nothing for any other version, such as that of a new file. Throws
// SQLite::Exception. Errors: those of the disk.
absl::Status BackUpBeforeMigration(SQLite::Database& database, int newest);

// Returns NotFound with the reason JOB_NOT_FOUND.
absl::Status JobNotFound(const JobId& id);

// The use of a prepared statement. The destructor resets the statement, because otherwise it would keep its read lock
// on the file.
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

// The records of calls that were begun or answered, by `request_id`. Each record is a row of the table
// answered_requests. Only the newest JobStore::kMaxRequests records are kept.
class RequestRows {
 public:
  // Borrows the database.
  explicit RequestRows(SQLite::Database& database);

  // Inserts a record. If there is one already, replaces it and keeps its age. Does nothing if the id is empty.
  void Put(const RequestKey& request, const RequestRecord& record);
  void Drop(const std::string& request_id);
  // See JobStore::FindRequest and JobStore::FindCreation.
  absl::StatusOr<std::optional<RequestRecord>> Find(const RequestKey& request);
  absl::StatusOr<std::optional<Creation>> FindCreation(const std::string& request_id);
  // Records the CreateJob that made `job`.
  void PutCreation(const std::string& request_id, const std::string& asked, const JobId& job);
  // Makes the record of the CreateJob that made `job` the newest one. If that record is no longer kept, makes a new
  // one without `asked`.
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
  // `prepared` is a database on which PrepareDatabase was called.
  explicit StoreConnection(SQLite::Database prepared);

  // Returns whether the statement `by`, with the parameter `key`, finds a row.
  static bool Has(SQLite::Statement& by, const std::string& key);
  // Returns the request_id of the call that created the job. Returns an empty text if the call had none, or if there
  // is no such job.
  std::string RequestOf(const JobId& id);
  // Returns the job that the statement `by`, with the parameter `key`, finds. The job has its first kMostEpochs
  // epochs after `after_epoch`.
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
