#include "jobs/store_connection.h"

#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "jobs/job_row.h"
#include "jobs/job_store.h"
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

namespace {

// RequestKey::what of a CreateJob begins with it; what was asked for follows.
constexpr absl::string_view kCreation = "create";

absl::Status Reused(const std::string& request_id) {
  return WithReason(absl::AlreadyExistsError(
                        absl::StrCat("request_id ", request_id, " was used for another call; use a new one for each")),
                    "REQUEST_ID_REUSED");
}

// Returns what a CreateJob asked for; nullopt: it is another call.
std::optional<std::string> AskedIn(absl::string_view what) {
  if (!absl::ConsumePrefix(&what, kCreation) || (!what.empty() && !absl::ConsumePrefix(&what, " "))) {
    return std::nullopt;
  }
  return std::string(what);
}

// The number of rows that it wrote.
int Write(SQLite::Statement& statement, const RequestKey& request, const RequestRecord& record) {
  Use write(statement);
  write->bind(1, request.id);
  write->bind(2, request.what);
  write->bind(3, record.answered ? 1 : 0);
  write->bind(4, record.subject);
  return write->exec();
}

}  // namespace

RequestRows::RequestRows(SQLite::Database& database)
    : database_(database),
      update_(database, "UPDATE answered_requests SET what = ?2, answered = ?3, subject = ?4 WHERE request_id = ?1"),
      // The newest row's number is given again where that row is gone: what was refused pushes nothing out.
      insert_(database,
              "INSERT INTO answered_requests (sequence, request_id, what, answered, subject) VALUES "
              "((SELECT COALESCE(MAX(sequence), 0) + 1 FROM answered_requests), ?1, ?2, ?3, ?4)"),
      trim_(database, "DELETE FROM answered_requests WHERE sequence <= ?"),
      drop_(database, "DELETE FROM answered_requests WHERE request_id = ?"),
      select_(database, "SELECT what, answered, subject FROM answered_requests WHERE request_id = ?") {}

void RequestRows::Put(const RequestKey& request, const RequestRecord& record) {
  if (request.id.empty()) return;
  if (Write(update_, request, record) > 0) return;
  Write(insert_, request, record);
  Use trim(trim_);
  trim->bind(1, static_cast<int64_t>(database_.getLastInsertRowid()) - JobStore::kMaxRequests);
  trim->exec();
}

void RequestRows::Drop(const std::string& request_id) {
  Use drop(drop_);
  drop->bind(1, request_id);
  drop->exec();
}

std::optional<RequestRows::Row> RequestRows::FindRow(const std::string& request_id) {
  if (request_id.empty()) return std::nullopt;
  Use select(select_);
  select->bind(1, request_id);
  if (!select->executeStep()) return std::nullopt;
  return Row{.what = select->getColumn(0).getString(),
             .record = {.answered = select->getColumn(1).getInt() != 0, .subject = select->getColumn(2).getString()}};
}

absl::StatusOr<std::optional<RequestRecord>> RequestRows::Find(const RequestKey& request) {
  const std::optional<Row> row = FindRow(request.id);
  if (!row) return std::nullopt;
  if (row->what != request.what) return Reused(request.id);
  return row->record;
}

absl::StatusOr<std::optional<Creation>> RequestRows::FindCreation(const std::string& request_id) {
  const std::optional<Row> row = FindRow(request_id);
  if (!row) return std::nullopt;
  const std::optional<std::string> asked = AskedIn(row->what);
  if (!asked) return Reused(request_id);
  return Creation{.job = JobId(row->record.subject), .asked = *asked};
}

void RequestRows::PutCreation(const std::string& request_id, const std::string& asked, const JobId& job) {
  Put({.id = request_id, .what = asked.empty() ? std::string(kCreation) : absl::StrCat(kCreation, " ", asked)},
      {.answered = true, .subject = job.value()});
}

void RequestRows::RenewCreation(const std::string& request_id, const JobId& job) {
  const std::optional<Row> row = FindRow(request_id);
  Drop(request_id);
  PutCreation(request_id, row ? AskedIn(row->what).value_or("") : "", job);
}

}  // namespace permafrost::jobs
