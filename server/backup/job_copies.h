// Copies jobs: their rows of the database, and of each the newest whole checkpoint while its run writes newer ones and
// removes it. Threads: each call has connections of its own; the daemon's goes on beside them. A copier has one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backup/copier.h"
#include "base/id.h"
#include "jobs/job.h"

namespace permafrost::backup {

enum class CheckpointCopy {
  kWhole,  // it is in the backup
  kNone,   // the job has none yet
  kLost,   // the job had one by its record or its files; all that are there are damaged, or they are gone
};

// `state_dir` and `backup`: those of the copier. `had_one`: the record knows of a checkpoint.
// Hard links hold a checkpoint's files until they are copied, so that a removal by the run does no harm. Where the file
// system makes no links, a checkpoint that is removed while it is copied is given up for a newer one. "None" and "lost"
// are told only where the folder did not change during the look. Errors: Unavailable where it changes all the time; the
// copier's.
absl::StatusOr<CheckpointCopy> CopyNewestCheckpoint(const std::filesystem::path& state_dir,
                                                    const std::filesystem::path& backup, const JobId& id, bool had_one,
                                                    Copier& copier);

// A job as a backup's database has it.
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
