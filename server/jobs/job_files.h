// Where a job's files lie: jobs/ID/log, jobs/ID/artifacts/, and what training keeps beside them.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/id.h"

namespace permafrost::jobs {

class JobFiles {
 public:
  // `directory`: state_dir/jobs.
  explicit JobFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

  std::filesystem::path Directory(const JobId& id) const { return directory_ / id.value(); }
  std::filesystem::path Log(const JobId& id) const { return Directory(id) / "log"; }

  // An empty directory for a new job.
  absl::Status Make(const JobId& id) const;
  // Moves the directory of a job that is no longer on record out of the way at once; returns where it lies until
  // removed. Ok if there is none. `sequence` (the job's) tells the leavings of two jobs of one id apart.
  absl::StatusOr<std::filesystem::path> Discard(const JobId& id, int64_t sequence) const;
  // Removes every entry whose name is not the id of a job on record.
  absl::Status RemoveStrays(const std::function<bool(const JobId&)>& on_record) const;

  struct Piece {
    std::string data;
    int64_t next_offset = 0;
    bool at_end = false;  // the read reached the file's end
  };
  // At most `max_bytes` of the log from `offset`; negative: that far before the present end. A log that does not exist
  // yet is empty. Errors: OutOfRange beyond the end, InvalidArgument for max_bytes < 1, Internal.
  absl::StatusOr<Piece> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const;

 private:
  std::filesystem::path directory_;
};

}  // namespace permafrost::jobs
