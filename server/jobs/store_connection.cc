#include "jobs/store_connection.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "jobs/job_json.h"
#include "jobs/job_row.h"
#include "jobs/job_store.h"
#include "jobs/statement_use.h"
#include "telemetry/log.h"

namespace permafrost::jobs {

absl::Status JobNotFound(const JobId& id) {
  return WithReason(absl::NotFoundError(absl::StrCat("job ", id.value(), " does not exist")), "JOB_NOT_FOUND",
                    {{"job", id.value()}});
}

StoreConnection::StoreConnection(SQLite::Database prepared)
    : database(std::move(prepared)),
      insert(database, kInsertJob),
      update(database, absl::StrCat("UPDATE jobs SET ", kLiveColumns, " WHERE id = ?")),
      describe(database, "UPDATE jobs SET spec = ?, labels = ? WHERE id = ?"),
      put_epoch(database, "INSERT OR REPLACE INTO epochs SELECT sequence, ?, ? FROM jobs WHERE id = ?"),
      by_id(database, absl::StrCat(kSelectJob, "WHERE id = ?")),
      by_request(database, absl::StrCat(kSelectJob, "WHERE request_id = ?")),
      request_of(database, "SELECT request_id FROM jobs WHERE id = ?"),
      epochs(database, "SELECT metrics FROM epochs WHERE job = ? AND epoch > ? ORDER BY epoch"),
      list(database, absl::StrCat(kSelectJob,
                                  "WHERE sequence < ? AND (state IN (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) OR ?) "
                                  "ORDER BY sequence DESC LIMIT ?")),
      erase(database, "DELETE FROM jobs WHERE id = ?"),
      // AUTOINCREMENT keeps the last sequence here, which deletions leave.
      last_sequence(database, "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'"),
      put_cache(database,
                "INSERT INTO graph_caches SELECT sequence, ?, '[]' FROM jobs WHERE id = ? "
                "ON CONFLICT (job) DO UPDATE SET snapshot = excluded.snapshot"),
      put_entries(database, "UPDATE graph_caches SET entries = ? WHERE job = (SELECT sequence FROM jobs WHERE id = ?)"),
      cache(database, "SELECT snapshot FROM jobs LEFT JOIN graph_caches ON job = sequence WHERE id = ?"),
      entries(database, "SELECT entries FROM jobs LEFT JOIN graph_caches ON job = sequence WHERE id = ?"),
      put_command(database, "INSERT OR REPLACE INTO cache_commands SELECT sequence, ?, ? FROM jobs WHERE id = ?"),
      commands(database,
               "SELECT command FROM cache_commands WHERE job = (SELECT sequence FROM jobs WHERE id = ?) "
               "ORDER BY sequence"),
      requests(database) {}

bool StoreConnection::Has(SQLite::Statement& by, const std::string& key) {
  Use select(by);
  select->bind(1, key);
  return select->executeStep();
}

std::string StoreConnection::RequestOf(const JobId& id) {
  Use select(request_of);
  select->bind(1, id.value());
  return select->executeStep() && !select->getColumn(0).isNull() ? select->getColumn(0).getString() : "";
}

std::optional<Job> StoreConnection::Find(SQLite::Statement& by, const std::string& key, int64_t after_epoch) {
  Use select(by);
  select->bind(1, key);
  if (!select->executeStep()) return std::nullopt;
  Job job = ReadRow(*select);
  Use select_epochs(epochs);
  select_epochs->bind(1, job.sequence);
  select_epochs->bind(2, after_epoch);
  while (job.epochs.size() < kMostEpochs && select_epochs->executeStep()) {
    const absl::StatusOr<train::EpochMetrics> metrics = EpochFromJson(select_epochs->getColumn(0).getString());
    if (metrics.ok()) {
      job.epochs.push_back(*metrics);
    } else {
      // A line of its history, which nothing depends on.
      telemetry::Log(
          telemetry::Severity::kWarning,
          absl::StrCat("job ", job.id.value(), ": an epoch on record cannot be read: ", metrics.status().message()));
    }
  }
  return job;
}

absl::Status StoreConnection::PutCache(const JobId& id, const graphcache::Snapshot& snapshot) {
  Use put(put_cache);
  put->bind(1, graphcache::ToJson(snapshot));
  put->bind(2, id.value());
  return put->exec() == 1 ? absl::OkStatus() : JobNotFound(id);
}

}  // namespace permafrost::jobs
