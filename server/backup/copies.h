// Copies what a backup holds, even while it changes: files, rows of jobs, datasets, imports, the audit log, and each
// job's newest whole checkpoint while its run writes newer ones and removes it.
// Threads: each call on the database opens connections of its own, and the daemon's connection goes on beside them. A
// copier is used by one thread.
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

// Called with the bytes done and the total. Returning false ends the backup.
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
  // CopyFile; NotFound also if a file or the folder disappears meanwhile.
  absl::Status CopyFolder(const std::string& path) { return CopyFolder(path, path); }
  // Copies the folder `from` to the path `to` in the backup.
  absl::Status CopyFolder(const std::string& from, const std::string& to);
  // Hashes and syncs a file that is in the backup already.
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
  kNone,   // the job has none yet
  kLost,   // by its record or its files the job had some, but all are damaged or gone
};

// Copies the newest whole checkpoint of a job. `state_dir` and `backup` are those of the copier. `had_one` means that
// the job's record knows of a checkpoint. Hard links hold a checkpoint's files until they are copied, so the run may
// remove it meanwhile. If the file system has no hard links, a checkpoint that is removed while it is copied is given
// up for a newer one. Returns kNone or kLost only if the folder did not change during the look. Errors: Unavailable
// if it changes all the time; the copier's.
absl::StatusOr<CheckpointCopy> CopyNewestCheckpoint(const std::filesystem::path& state_dir,
                                                    const std::filesystem::path& backup, const JobId& id, bool had_one,
                                                    Copier& copier);

// A job's row in a database, with the columns that a backup needs.
struct JobRow {
  JobId id;
  bool ended = false;
  DatasetId dataset;        // empty: the spec cannot be read
  std::string dataset_uid;  // empty: an older version made the job without noting it
  // True if a checkpoint of the job was complete when the row was written.
  bool had_checkpoint = false;
};

// Returns the rows of all jobs. Errors, here and below: those of SQLite (jobs::ToStatus).
absl::StatusOr<std::vector<JobRow>> ReadJobRows(const std::filesystem::path& database);
// Copies the database, as it is at one moment of the call, to `to`, which must not exist. The copy is checked when
// Ok, but not synced.
absl::Status CopyDatabase(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes jobs, with all that belongs to them, from a copy of the database.
absl::Status DropJobRows(const std::filesystem::path& database, const std::vector<JobId>& jobs);

// Copies datasets, each as it was at one moment, and remembers the uid of each copy.
class DatasetCopies {
 public:
  // Borrows all arguments. `state_dir` and `backup` are those of the copier.
  DatasetCopies(const std::filesystem::path& state_dir, const std::filesystem::path& backup, Copier& copier)
      : state_dir_(state_dir), backup_(backup), copier_(copier) {}

  // Copies every dataset. Errors, here and below: Unavailable if a dataset is replaced faster than it can be copied;
  // the copier's.
  absl::Status CopyAll();
  // Returns whether the copy of this name belongs to the dataset of this uid. If not, first copies the dataset again
  // as it is now. If `uid` is empty, or the record of the dataset has no uid, only the names are compared.
  absl::StatusOr<bool> Pair(const std::string& name, const std::string& uid);

 private:
  absl::Status Copy(const std::string& name);
  bool Has(const std::string& name, const std::string& uid) const;

  const std::filesystem::path &state_dir_, &backup_;
  Copier& copier_;
  std::map<std::string, std::string> uids_;  // uid of each copy, by name; empty: not known
};

// Copies the audit log and the rotated logs before it (audit.jsonl, .1 ...) up to their present ends. Errors:
// Unavailable if they are rotated faster than they can be copied; the copier's.
absl::Status CopyAudit(const std::filesystem::path& state_dir, Copier& copier);

// Copies the records of imports that have not succeeded (datasets/.imports), and returns the names of their datasets,
// sorted. Another server restarts those imports that are wanted, if it can see their sources. Call this before
// datasets are copied. A dataset whose import ends meanwhile is then in the backup as a record or as a dataset.
// Errors: the copier's.
absl::StatusOr<std::vector<std::string>> CopyImports(const std::filesystem::path& state_dir, Copier& copier);

}  // namespace permafrost::backup
