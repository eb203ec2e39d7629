// The files of jobs below state_dir/jobs: ID/log, ID/artifacts/, ID/last-step, and the files that training keeps
// beside them.
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
#include "base/file.h"
#include "base/id.h"
#include "jobs/job.h"

namespace permafrost::jobs {

// Finds, makes and removes the files of jobs.
// Threads: safe anywhere.
class JobFiles {
 public:
  // `directory` is state_dir/jobs.
  explicit JobFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path Directory(const JobId& id) const { return directory_ / id.value(); }
  std::filesystem::path Log(const JobId& id) const { return Directory(id) / "log"; }

  // The file that records the step of the run (RunMark).
  std::filesystem::path Mark(const JobId& id) const { return Directory(id) / "last-step"; }

  // Makes an empty directory for a new job. The caller must know that no job on record has this id. A directory that
  // exists already then belongs to no job on record, and is quarantined.
  absl::Status Make(const JobId& id) const;
  // Notes in the job's directory that the row with this sequence is about to be deleted. If the process dies before
  // Discard, FindUnknownDirectories recognises the files as deleted. Without the note it treats them as unknown.
  void MarkDeleted(const JobId& id, int64_t sequence) const;
  // Removes the note because the row stays. Does nothing if there is no note.
  void UnmarkDeleted(const JobId& id) const;
  // Moves the directory of a deleted job to Discarded(). After Ok, the move is on disk. If there is no directory,
  // returns Ok too. `sequence` is that of the job; it distinguishes the directories of two deleted jobs with one id.
  absl::Status Discard(const JobId& id, int64_t sequence) const;
  // Returns the path to which the directory of a deleted job is moved until it is removed.
  std::filesystem::path Discarded(const JobId& id, int64_t sequence) const;

  // Entries of the directory that do not belong to a job on record.
  struct Strays {
    std::vector<std::string> unknown;    // of jobs that this database does not know; another database may
    std::vector<std::string> with_work;  // those of `unknown` that hold checkpoints or artifacts
    std::vector<std::string> discarded;  // left by Discard, or provably those of a deleted job
  };
  // Finds the entries that do not belong to a job on record. `last_sequence` is the largest sequence that the store
  // ever gave. A directory provably belongs to a deleted job if MarkDeleted noted a sequence of at most
  // `last_sequence` in it. The store then once held that row and does not hold it now.
  absl::StatusOr<Strays> FindUnknownDirectories(const std::function<bool(const JobId&)>& on_record,
                                                int64_t last_sequence) const;
  // Removes the discarded entries, and logs a warning for each that cannot be removed now. Removes each unknown entry
  // that is an empty directory. Renames every other unknown entry to `.quarantine-NAME-TIME`, since it may be worth
  // keeping. Returns the paths of the quarantined entries.
  absl::StatusOr<std::vector<std::filesystem::path>> ClearStrays(const Strays& strays) const;

  struct Piece {
    std::string data;
    int64_t next_offset = 0;
    bool at_end = false;  // the read reached the file's end
  };
  // Reads at most `max_bytes` of the log from `offset`. A negative offset counts back from the present end. If the
  // part at `offset` is no longer kept, returns a line that says so, and sets `next_offset` to the beginning of the
  // kept part. A log that does not exist yet is empty. Errors: OutOfRange beyond the end; InvalidArgument for
  // max_bytes < 1; Internal.
  absl::StatusOr<Piece> ReadLog(const JobId& id, int64_t offset, int64_t max_bytes) const;

 private:
  // Moves an entry to quarantine and returns its new path. If the entry is an empty directory, removes it and returns
  // nullopt.
  absl::StatusOr<std::optional<std::filesystem::path>> Quarantine(const std::string& name) const;

  std::filesystem::path directory_;
};

// Keeps the pieces of logs that were read last, so that many followers at the end of one log cause only one read.
// Without this class, opening and searching the files for each of 200 streams took 1.5 % of the samples in a profile
// of a training.
// Threads: all methods are safe anywhere; Read may wait for the disk. Borrows the files.
class LogPieces {
 public:
  explicit LogPieces(const JobFiles& files) : files_(files) {}

  // Forgets all pieces. Call it after each change of any log.
  void Forget() { changes_.fetch_add(1, std::memory_order_acq_rel); }
  // Same as JobFiles::ReadLog. If an equal call was made since the last Forget, may return the piece of that call.
  absl::StatusOr<JobFiles::Piece> Read(const JobId& id, int64_t offset, int64_t max_bytes);

 private:
  struct Place {
    JobId id;
    int64_t offset = 0, max_bytes = 0;
    uint64_t changes = 0;  // the value of changes_ before the piece was read
    bool operator==(const Place&) const = default;
  };
  struct Kept {
    Place place;
    JobFiles::Piece piece;
  };

  const JobFiles& files_;
  std::atomic<uint64_t> changes_ = 0;
  absl::Mutex mu_;
  // Each stream first asks for the new lines, and then for more lines. Four places are enough, because few jobs write
  // at a time.
  std::array<std::optional<Kept>, 4> kept_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;  // index of the place that the next piece takes
};

// Keeps the present step of a run in a small file, which is overwritten at each step. The file survives the death of
// the process, although it is not synced. It tells the next server at which step this server died.
// Threads: one thread.
class RunMark {
 public:
  static constexpr int64_t kBeforeFirstStep = -1;

  struct Content {
    std::string boot_id;
    int64_t step = kBeforeFirstStep;
    bool operator==(const Content&) const = default;
  };

  // Replaces the mark of an earlier run with one that names this boot and no step yet. Errors: transient.
  static absl::StatusOr<RunMark> Begin(const std::filesystem::path& path);
  // `step` is the number of optimizer steps done. A failed write is ignored: the mark then names an earlier step.
  void SetStep(int64_t step);
  // Returns nullopt if there is no mark that can be read.
  static std::optional<Content> Read(const std::filesystem::path& path);

 private:
  RunMark(Descriptor file, std::size_t step_offset) : file_(std::move(file)), step_offset_(step_offset) {}
  Descriptor file_;
  std::size_t step_offset_;
};

// If the server dies this often at one place of a job, the job counts as the cause and fails. Otherwise the job would
// take down every later server, too.
inline constexpr int32_t kMostDeaths = 5;

// Returns "before its first step" or a text such as "after step 12".
std::string PlaceText(const Deaths& deaths);

// Returns `before` with one more death of the server. If the job was at the same place again, the count rises;
// otherwise it begins again at 1. The place is the same if both runs had done the same number of steps. If both died
// before their first step, there must also be no checkpoint in between. If the machine was rebooted since, or if
// `mark` is missing, the death is not counted, because anything else is then as likely a cause.
Deaths CountDeath(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                  int64_t checkpoint_step);

// Counts a failure of the device in the same way. The device reports a fault a varying number of steps after its
// cause. So the place also counts as the same at different steps if no checkpoint was made since the last failure.
Deaths CountDeviceFault(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                        int64_t checkpoint_step);

}  // namespace permafrost::jobs
