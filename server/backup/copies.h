// Copies what a backup holds: files, rows of jobs, datasets, imports, the audit log, and the newest whole checkpoint
// of each job. All of these may change during the copy; a run may even write newer checkpoints and remove the one
// that is being copied.
// Threads: each call on the database opens its own connections, and the daemon's connection keeps working meanwhile.
// A copier is used by one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backup/manifest.h"
#include "base/id.h"
#include "base/resources.h"

namespace permafrost::backup {

// Called with the number of bytes copied so far and the total number. If it returns false, the backup ends.
using OnProgress = std::function<bool(int64_t done, int64_t total)>;

// Copies files into a backup. Each file is hashed and synced as it is written.
// Threads: one thread.
class Copier {
 public:
  // `from` is the state directory, and `to` the backup in the making. `total` is the expected number of bytes, for
  // the display of progress. `reserve` is checked before each piece.
  Copier(std::filesystem::path from, std::filesystem::path to, int64_t total, DiskReserve reserve,
         OnProgress on_progress);

  // Copies the file at this relative path up to its present end. Errors: NotFound if it does not exist;
  // FailedPrecondition if it is not a regular file; ResourceExhausted, reason DISK_NEARLY_FULL; Cancelled; those of
  // SystemError.
  absl::Status CopyFile(const std::string& path) { return CopyFile(path, path); }
  // Copies every regular file of a folder and its subfolders, except names that begin with '.'. Errors: those of
  // CopyFile; NotFound also if a file or the folder disappears during the copy.
  absl::Status CopyFolder(const std::string& path) { return CopyFolder(path, path); }
  // Copies the folder `from` to the path `to` in the backup.
  absl::Status CopyFolder(const std::string& from, const std::string& to);
  // Hashes and syncs a file that already lies in the backup, and adds it to files().
  absl::Status Take(const std::string& path);
  // Removes from the backup what was copied to this path or below it.
  absl::Status Drop(const std::string& path);
  // Syncs every folder of the backup.
  absl::Status SyncFolders() const;

  const CopiedFiles& files() const { return files_; }
  int64_t bytes() const;

 private:
  absl::Status CopyFile(const std::string& from, const std::string& to);
  absl::Status Tell(int64_t bytes);

  const std::filesystem::path from_, to_;
  const DiskReserve reserve_;
  const OnProgress on_progress_;
  int64_t done_ = 0, total_;
  CopiedFiles files_;
};

// Returns the bytes of the regular files at or below a path, as far as they can be read.
int64_t BytesBelow(const std::filesystem::path& path);

enum class CheckpointCopy {
  kWhole,  // a whole checkpoint is in the backup
  kNone,   // the job has no checkpoint yet
  kLost,   // the job had checkpoints, by its record or its files, but all are damaged or gone
};

// Copies the newest whole checkpoint of a job. `state_dir` and `backup` are those of the copier. `had_one` means that
// the job's record knows of a checkpoint. Hard links keep the checkpoint's files until they are copied, so the run
// may remove the checkpoint meanwhile. If the file system has no hard links and a checkpoint is removed while it is
// copied, a newer checkpoint is copied instead. Returns kNone or kLost only if the folder of checkpoints did not
// change while it was listed. Errors: Unavailable if the folder keeps changing; those of the copier.
absl::StatusOr<CheckpointCopy> CopyNewestCheckpoint(const std::filesystem::path& state_dir,
                                                    const std::filesystem::path& backup, const JobId& id, bool had_one,
                                                    Copier& copier);

// A job's row in a database, with the columns that a backup needs.
struct JobRow {
  JobId id;
  bool ended = false;
  DatasetId dataset;        // empty: the spec cannot be read
  std::string dataset_uid;  // empty: an older version made the job and did not record the uid
  // True if a checkpoint of the job was complete when the row was written.
  bool had_checkpoint = false;
};

// Returns the rows of all jobs. Errors, here and below: those of SQLite (jobs::ToStatus).
absl::StatusOr<std::vector<JobRow>> ReadJobRows(const std::filesystem::path& database);
// Copies the database, as it is at one moment of the call, to `to`, which must not exist. After Ok, the copy has been
// checked, but not synced.
absl::Status CopyDatabase(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes jobs, with all that belongs to them, from a copy of the database.
absl::Status DropJobRows(const std::filesystem::path& database, const std::vector<JobId>& jobs);

// Copies datasets, and remembers the uid of each copy. A copy holds the dataset as it was at one moment.
class DatasetCopies {
 public:
  // Borrows all arguments. `state_dir` and `backup` are those of the copier.
  DatasetCopies(const std::filesystem::path& state_dir, const std::filesystem::path& backup, Copier& copier)
      : state_dir_(state_dir), backup_(backup), copier_(copier) {}

  // Copies every dataset. Errors, here and below: Unavailable if a dataset is replaced faster than it can be copied;
  // those of the copier.
  absl::Status CopyAll();
  // Returns whether the copy of the dataset `name` has this uid. If the copy has another uid or does not exist, first
  // copies the dataset again, as it is now. If `uid` is empty, or the dataset's record has no uid, any copy under
  // this name counts.
  absl::StatusOr<bool> Pair(const std::string& name, const std::string& uid);

 private:
  absl::Status Copy(const std::string& name);
  bool Has(const std::string& name, const std::string& uid) const;

  const std::filesystem::path &state_dir_, &backup_;
  Copier& copier_;
  std::map<std::string, std::string> uids_;  // uid of each copy, by name; empty: not known
};

// Copies the audit log and its rotated predecessors (audit.jsonl, .1 ...) up to their present ends. Errors:
// Unavailable if the logs are rotated faster than they can be copied; those of the copier.
absl::Status CopyAudit(const std::filesystem::path& state_dir, Copier& copier);

// Copies the records of imports that have not succeeded (datasets/.imports), and returns the names of their datasets,
// sorted. A server that goes on from the backup restarts the imports that are still wanted, if it can see their
// sources. Call this before datasets are copied. If an import ends meanwhile, the backup then holds its record, its
// dataset, or both.
// Errors: those of the copier.
absl::StatusOr<std::vector<std::string>> CopyImports(const std::filesystem::path& state_dir, Copier& copier);

}  // namespace permafrost::backup
