// The files of jobs: jobs/ID/log, jobs/ID/artifacts/, and the files that training keeps beside them.
// Threads: safe anywhere.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/id.h"

namespace permafrost::jobs {

class JobFiles {
 public:
  // `directory`: state_dir/jobs.
  explicit JobFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path Directory(const JobId& id) const { return directory_ / id.value(); }
  std::filesystem::path Log(const JobId& id) const { return Directory(id) / "log"; }

  // The mark of the step that the run is at (run_mark.h).
  std::filesystem::path Mark(const JobId& id) const { return Directory(id) / "last-step"; }

  // An empty directory for a new job. One that is there already, of no job on record, is quarantined.
  absl::Status Make(const JobId& id) const;
  // Notes on disk, in the job's directory, that the row of this sequence is about to be deleted. If the process dies
  // before Discard, FindUnknownDirectories knows the files as deleted. If the note cannot be made, they are unknown
  // files then.
  void MarkDeleted(const JobId& id, int64_t sequence) const;
  // The row stays. No error where nothing was noted.
  void UnmarkDeleted(const JobId& id) const;
  // Moves the directory of a job that was deleted out of the way, to Discarded(): on disk when Ok, also where there is
  // none. `sequence` (the job's) tells the leavings of two jobs of one id apart.
  absl::Status Discard(const JobId& id, int64_t sequence) const;
  // The directory of a deleted job is moved here until it is removed.
  std::filesystem::path Discarded(const JobId& id, int64_t sequence) const;

  // Entries of the directory that are not the directory of a job on record.
  struct Strays {
    std::vector<std::string> unknown;    // of no job that is known: another database may know it
    std::vector<std::string> with_work;  // of those: with checkpoints or artifacts
    std::vector<std::string> discarded;  // leavings of Discard, and directories of jobs that are proven to be deleted
  };
  // last_sequence: the largest that the store ever gave. A directory that MarkDeleted noted one in which is not beyond
  // it is of a job that the store once held, and holds no more: its row was deleted.
  absl::StatusOr<Strays> FindUnknownDirectories(const std::function<bool(const JobId&)>& on_record,
                                                int64_t last_sequence) const;
  // Removes what was discarded, as far as that can be done now (a warning tells of the rest), and renames each unknown
  // entry to `.quarantine-NAME-TIME`: nothing proves that it is worth nothing. Empty directories, which hold nothing to
  // lose, are removed. Returns where the quarantined ones lie.
  absl::StatusOr<std::vector<std::filesystem::path>> ClearStrays(const Strays& strays) const;

  struct Piece {
    std::string data;
    int64_t next_offset = 0;
    bool at_end = false;  // the read reached the file's end
  };
  // At most `max_bytes` of the log from `offset`; where that part of it is not kept any more, a line that says so, and
  // `next_offset` is where the rest begins; negative: that far before the present end. A log that does not exist
  // yet is empty. Errors: OutOfRange beyond the end, InvalidArgument for max_bytes < 1, Internal.
  absl::StatusOr<Piece> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const;

 private:
  // Returns where it lies now; nullopt: it was empty, and is gone.
  absl::StatusOr<std::optional<std::filesystem::path>> Quarantine(const std::string& name) const;

  std::filesystem::path directory_;
};

// Pieces of logs as they were read last, so that many who follow one log, each at its present end, have it read once:
// to open and search the files anew for each of 200 streams was 1.5 % of the samples of a training's profile.
// Threads: all methods are safe anywhere; Read may wait for the disk. Borrows the files.
class LogPieces {
 public:
  explicit LogPieces(const JobFiles& files) : files_(files) {}

  // After each change of any log: what was read before is not given again.
  void Forget() { changes_.fetch_add(1, std::memory_order_acq_rel); }
  // Reads as JobFiles::ReadLog does, now or by the same call since the last Forget.
  absl::StatusOr<JobFiles::Piece> Read(const JobId& id, int64_t offset, int64_t max_bytes);

 private:
  struct Place {
    JobId id;
    int64_t offset = 0, max_bytes = 0;
    uint64_t changes = 0;  // seen before it was read
    bool operator==(const Place&) const = default;
  };
  struct Kept {
    Place place;
    JobFiles::Piece piece;
  };

  const JobFiles& files_;
  std::atomic<uint64_t> changes_ = 0;
  absl::Mutex mu_;
  // Each stream asks for the new lines, and then whether there are more; few jobs write at a time.
  std::array<std::optional<Kept>, 4> kept_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;  // the one whose place the next piece takes
};

}  // namespace permafrost::jobs
