// The files of jobs: jobs/ID/log, jobs/ID/artifacts/, jobs/ID/last-step, and the files that training keeps beside them.
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

// Threads: safe anywhere.
class JobFiles {
 public:
  // `directory`: state_dir/jobs.
  explicit JobFiles(std::filesystem::path directory) : directory_(std::move(directory)) {}

  const std::filesystem::path& directory() const { return directory_; }
  std::filesystem::path Directory(const JobId& id) const { return directory_ / id.value(); }
  std::filesystem::path Log(const JobId& id) const { return Directory(id) / "log"; }

  // The mark of the step that the run is at (RunMark).
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

// Keeps how far a run is so that it survives the death of the process but costs no fsync: a small file that is written
// over at each step. It tells the next server at which step this one died.
// Threads: one thread.
class RunMark {
 public:
  static constexpr int64_t kBeforeFirstStep = -1;

  struct Content {
    std::string boot_id;
    int64_t step = kBeforeFirstStep;
    bool operator==(const Content&) const = default;
  };

  // Replaces the mark of an earlier run with one of this boot, before the first step. Errors: transient.
  static absl::StatusOr<RunMark> Begin(const std::filesystem::path& path);
  // `step`: optimizer steps done. A write that fails is passed over: the mark then says less than it could.
  void SetStep(int64_t step);
  // nullopt: there is none that can be read.
  static std::optional<Content> Read(const std::filesystem::path& path);

 private:
  RunMark(Descriptor file, std::size_t step_offset) : file_(std::move(file)), step_offset_(step_offset) {}
  Descriptor file_;
  std::size_t step_offset_;
};

// Deaths at one place of a job before the job is held to be their cause: it would take every later server down too.
inline constexpr int32_t kMostDeaths = 5;

// "before its first step", "after step 12".
std::string PlaceText(const Deaths& deaths);

// `before` with one death more. It counts on where the place is the one of the deaths before: the same step, or again
// none, with no checkpoint made since. It does not count where the machine was booted anew since, or where `mark` does
// not say: the run is then no likelier a cause than anything else.
Deaths CountDeath(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                  int64_t checkpoint_step);

// The same for a device that failed. A device tells of a fault steps after its cause, and not always equally many: so
// it is the same place too where no checkpoint was made since the one before.
Deaths CountDeviceFault(const Deaths& before, const std::optional<RunMark::Content>& mark, const std::string& boot_id,
                        int64_t checkpoint_step);

}  // namespace permafrost::jobs
