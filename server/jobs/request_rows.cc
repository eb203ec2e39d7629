#include "jobs/request_rows.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "jobs/statement_use.h"

namespace permafrost::jobs {
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
