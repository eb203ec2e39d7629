// Copies what a backup holds, even while it changes: files, each job's row and newest whole checkpoint (while its run
// writes newer ones and removes it), datasets, imports and the audit log. Threads: each call on the database has
// connections of its own; the daemon's goes on beside them. A copier has one thread.
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

// Hears of bytes done and in all; false ends the backup.
using OnProgress = std::function<bool(int64_t done, int64_t total)>;

// Copies files into a backup: each is hashed and synced as it is written.
// Threads: one.
class Copier {
 public:
  // `from` and `to`: the state directory and the backup in the making. `total`: bytes that are expected, for show.
  // `reserve`: looked at before each piece.
  Copier(std::filesystem::path from, std::filesystem::path to, int64_t total, DiskReserve reserve,
         OnProgress on_progress);

  // The file of this relative path as far as it goes now. Errors: NotFound where there is none; FailedPrecondition
  // where it is no regular file; ResourceExhausted, reason DISK_NEARLY_FULL; Cancelled; those of SystemError.
  absl::Status CopyFile(const std::string& path) { return CopyFile(path, path); }
  // Every regular file of a folder and of those in it, names that begin with '.' apart. NotFound where a file or the
  // folder has gone meanwhile.
  absl::Status CopyFolder(const std::string& path) { return CopyFolder(path, path); }
  // Does the same under another path in the backup.
  absl::Status CopyFolder(const std::string& from, const std::string& to);
  // A file that lies in the backup already: hashes and syncs it.
  absl::Status Take(const std::string& path);
  // Removes what was copied to this path, or below it.
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

// Bytes of the regular files at or below a path, as far as they can be read.
int64_t BytesBelow(const std::filesystem::path& path);

enum class CheckpointCopy {
  kWhole,  // it is in the backup
  kNone,   // the job has none yet
  kLost,   // the job had one by its record or its files; all that are there are damaged, or they are gone
};

// `state_dir` and `backup`: those of the copier. `had_one`: the record knows of a checkpoint. Hard links hold a
// checkpoint's files until they are copied, so that a removal by the run does no harm. Where the file system makes no
// links, a checkpoint that is removed while it is copied is given up for a newer one. Returns kNone or kLost only if
// the folder did not change during the look. Errors: Unavailable where it changes all the time; the copier's.
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

// Returns all jobs' rows. Errors: as of SQLite (jobs::ToStatus), here and below.
absl::StatusOr<std::vector<JobRow>> ReadJobRows(const std::filesystem::path& database);
// `to` becomes the database as it was at one moment of the call; it must not be there. Checked when Ok, not synced.
absl::Status CopyDatabase(const std::filesystem::path& from, const std::filesystem::path& to);
// Removes jobs from a copy, with all that belongs to them.
absl::Status DropJobRows(const std::filesystem::path& database, const std::vector<JobId>& jobs);

// Copies datasets, each as it was at one moment, and tells which is which by its uid.
class DatasetCopies {
 public:
  // Borrows the copier. `state_dir` and `backup`: those of the copier.
  DatasetCopies(const std::filesystem::path& state_dir, const std::filesystem::path& backup, Copier& copier)
      : state_dir_(state_dir), backup_(backup), copier_(copier) {}

  // Copies every dataset that is there. Errors, here and below: Unavailable where one is replaced faster than it can be
  // copied; the copier's.
  absl::Status CopyAll();
  // Tells whether the copy with this name belongs to the dataset with this uid. If it does not, the dataset is first
  // copied again as it is now. If the uid is empty, or the dataset's record tells none, the name alone pairs them.
  absl::StatusOr<bool> Pair(const std::string& name, const std::string& uid);

 private:
  absl::Status Copy(const std::string& name);
  bool Has(const std::string& name, const std::string& uid) const;

  const std::filesystem::path &state_dir_, &backup_;
  Copier& copier_;
  std::map<std::string, std::string> uids_;  // of the copies, by name; empty: not known
};

// Copies the audit log and the rotated ones before it (audit.jsonl, .1 ...), as far as they go now. Errors: Unavailable
// where they are rotated faster than they can be copied; the copier's.
absl::Status CopyAudit(const std::filesystem::path& state_dir, Copier& copier);

// Copies the records of imports that have not ended well (datasets/.imports). Another server begins the wanted ones
// anew if it sees their sources. Returns the names of the datasets of the copied records, sorted. Call it before
// datasets are copied: a dataset whose import ends meanwhile is then in the backup as a record or as a dataset. Errors:
// the copier's.
absl::StatusOr<std::vector<std::string>> CopyImports(const std::filesystem::path& state_dir, Copier& copier);

}  // namespace permafrost::backup
