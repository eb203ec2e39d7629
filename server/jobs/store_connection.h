// The connection of a job store to its database, with its statements.
// Threads: one call at a time. Everything here throws SQLite::Exception.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/id.h"
#include "graphcache/snapshot.h"
#include "jobs/job.h"
#include "jobs/request_rows.h"

namespace permafrost::jobs {

// Returns NotFound with the reason JOB_NOT_FOUND.
absl::Status JobNotFound(const JobId& id);

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
