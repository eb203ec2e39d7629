// Calls that were begun or answered, by their `request_id`: rows of the table answered_requests, one a call, of which
// the newest JobStore::kMaxRequests are kept. Threads: the connection's. All methods throw SQLite::Exception.
#pragma once

#include <SQLiteCpp/SQLiteCpp.h>

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/id.h"
#include "jobs/job_store.h"

namespace permafrost::jobs {

class RequestRows {
 public:
  // Borrows the database.
  explicit RequestRows(SQLite::Database& database);

  // Inserts, or replaces what is said of the call: it stays as old as it was. An empty id: nothing.
  void Put(const RequestKey& request, const RequestRecord& record);
  void Drop(const std::string& request_id);
  // Both as JobStore's methods of these names.
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

}  // namespace permafrost::jobs
