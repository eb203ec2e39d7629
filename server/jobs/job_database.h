// The database file of the job store: its tables, checks and copies before anything in it is changed, the connection
// to it, and SQLite's errors as Status.
// Threads: the caller has the connection to itself during a call. StoreConnection, RequestRows and Use throw
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

// Sets up the connection and migrates its file to the present schema, from an empty file or an older schema. If two
// processes do so at once, one waits. A file of an older schema is first copied to FILE.vVERSION-backup (-backup-2
// and so on if that exists). The copy is on disk before the file changes. Throws SQLite::Exception. Errors:
// FailedPrecondition for an unknown schema version; DataLoss, with nothing changed, if SQLite's check finds damage.
absl::Status PrepareDatabase(SQLite::Database& database);

// Returns true if reading, writing, truncating or syncing the database or its log failed. Only then the errno that
// SQLite keeps for a file (SQLITE_FCNTL_LAST_ERRNO) belongs to this error.
bool IsOfFileBytes(const SQLite::Exception& error);
// Returns the errno behind an error that `database` has just met; 0: not known.
int SystemErrorOf(sqlite3* database, const SQLite::Exception& met);
// Returns the errno with which SQLite fails to open `file`; 0: it can open it, or the errno is not known.
int WhyNotOpened(const std::string& file);

// Turns an exception into a Status whose message names `file`. `system_error` is the errno behind it, or 0 if
// unknown; the message of an I/O error ends with it. Returns Unavailable for an errno which says that the file cannot
// be written just now, or that descriptors or memory are lacking.
absl::Status ToStatus(const std::string& file, const SQLite::Exception& error, int system_error = 0);

// Runs SQLite's quick_check, or its integrity_check on a small file, which compares indices with their tables too.
// Throws SQLite::Exception. Errors: DataLoss, naming the file, the first finding, and places where a good copy may
// be.
absl::Status CheckDatabase(SQLite::Database& database);

// Copies a database whose schema version is at least 1 and below `newest` to a file beside it, on disk when Ok.
// Replaces no file. Does nothing for other versions, such as that of a new file. Throws SQLite::Exception. Errors:
// those of the disk.
absl::Status BackUpBeforeMigration(SQLite::Database& database, int newest);

// Returns NotFound with the reason JOB_NOT_FOUND.
absl::Status JobNotFound(const JobId& id);

// A prepared statement for one use. It is reset at the end, because it would otherwise keep its read lock on the
// file.
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

// The records of calls that were begun or answered, by `request_id`. Each is a row of the table answered_requests.
// The newest JobStore::kMaxRequests are kept.
class RequestRows {
 public:
  // Borrows the database.
  explicit RequestRows(SQLite::Database& database);

  // Inserts a record, or replaces it without making it newer. Does nothing if the id is empty.
  void Put(const RequestKey& request, const RequestRecord& record);
  void Drop(const std::string& request_id);
  // See JobStore::FindRequest and JobStore::FindCreation.
  absl::StatusOr<std::optional<RequestRecord>> Find(const RequestKey& request);
  absl::StatusOr<std::optional<Creation>> FindCreation(const std::string& request_id);
  // Records the CreateJob that made `job`.
  void PutCreation(const std::string& request_id, const std::string& asked, const JobId& job);
  // Renews the record of the CreateJob that made `job`, so that it is the newest. If the record is no longer kept,
  // makes a new one without `asked`.
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

  // Returns whether the statement `by` finds a row for `key`.
  static bool Has(SQLite::Statement& by, const std::string& key);
  // Returns the request_id that a job was created with. Returns an empty text if it had none, or if there is no such
  // job.
  std::string RequestOf(const JobId& id);
  // Returns the job that the statement `by` finds for `key`, with the first kMostEpochs of its epochs after
  // `after_epoch`.
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
