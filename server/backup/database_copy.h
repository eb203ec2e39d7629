// The jobs' database as a backup has it.
// Threads: each call has connections of its own; the daemon's goes on beside them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"
#include "jobs/job.h"

namespace permafrost::backup {

struct JobRow {
  JobId id;
  bool ended = false;
  DatasetId dataset;        // empty: it cannot be told
  std::string dataset_uid;  // empty: a version made the job that did not note it
  // A checkpoint of it was complete when the row was written.
  bool had_checkpoint = false;
};

// All of them. Errors: as of SQLite (jobs::ToStatus), here and below.
absl::StatusOr<std::vector<JobRow>> ReadJobRows(const std::filesystem::path& database);
// `to` becomes the database as it was at one moment of the call; it must not be there. Checked when Ok, not synced.
absl::Status CopyDatabase(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes jobs from a copy, with all that belongs to them.
absl::Status DropJobRows(const std::filesystem::path& database, const std::vector<JobId>& jobs);

}  // namespace permafrost::backup
