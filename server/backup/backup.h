// Makes backups of the state directory of a running daemon. Also has the first steps of a daemon that starts from a
// copy of a backup.
//
// A backup is a folder. It holds permafrost.db, tokens.json, audit.jsonl, clock.json, plans/, programs/, jobs/ID/
// (logs, initial weights, program, artifacts, the newest whole checkpoint), the records of imports that have not
// ended, and backup.json with size and XXH3 of each file. If the request asks for it, the folder also holds
// datasets/. A backup is made under the name .tmp-NAME, synced, and renamed, so a folder named NAME is always a whole
// backup.
//
// The order of copying makes a backup consistent, like the state after a crash. The checkpoint of a job that has not
// ended is copied before the database, so every epoch and command that the checkpoint knows is on record. Files of an
// ended job are copied after the database, so a job on record as succeeded has its artifacts.
// Threads: safe anywhere. While a backup is made below a root, a second one there is refused.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backup/copies.h"
#include "base/id.h"
#include "base/resources.h"

namespace permafrost::backup {

struct Summary {
  std::filesystem::path path;
  int64_t files = 0, bytes = 0, jobs = 0;
  // Datasets that unfinished jobs use, but which the backup lacks or holds under another uid. They must be imported
  // before these jobs go on.
  std::vector<std::string> datasets_wanted;
  // Unfinished jobs whose checkpoints are all damaged or gone. Another daemon starts them from the beginning.
  std::vector<JobId> jobs_anew;
  // Datasets whose imports have not ended. Another daemon begins these imports anew if it can see their sources.
  // Imports of uploads are never listed.
  std::vector<std::string> imports;
};

struct Request {
  std::filesystem::path state_dir;
  std::filesystem::path root;  // a directory outside state_dir; empty: there is none
  std::string directory;       // NAME, or ROOT/NAME
  bool with_datasets = false;
  std::string version;  // version of the daemon
  // The reserve on the disk of `root`. It is checked before each piece is copied.
  DiskReserve reserve;
  // Identifies a call that may be repeated; empty: the call has no id.
  std::string request_id;
  // True if the call was answered before. Make then makes no backup, and returns the summary of the one that the
  // earlier call made.
  bool answered = false;
};

// Makes a backup. If an earlier call with this request_id made the backup, returns the summary of that backup. Leaves
// nothing on disk after an error. Errors:
//   FailedPrecondition: there is no root (reason NO_BACKUP_ROOT), or another backup is being made below it (reason
//     BACKUP_UNDER_WAY).
//   InvalidArgument, with a violation of "directory": it names no backup directly below the root.
//   AlreadyExists: the target exists, and is not an empty folder.
//   NotFound: the call was answered before, but the backup that it made is gone.
//   ResourceExhausted, reason DISK_NEARLY_FULL: the disk has no room for the backup.
//   DataLoss: the database is damaged.
//   Unavailable: the state changes faster than it can be copied.
//   Cancelled: `on_progress` returned false.
//   Those of SystemError.
absl::StatusOr<Summary> Make(const Request& request, const OnProgress& on_progress);

// Makes the folder .tmp-NAME, in which the backup `target` (ROOT/NAME) is made, and returns its path. First writes
// backup.json there as a mark that a backup is being made. An existing folder without this mark is never touched. The
// caller holds the root's lock. Errors: AlreadyExists if .tmp-NAME exists and is not part of a backup; those of
// SystemError.
absl::StatusOr<std::filesystem::path> CreateMaking(const std::filesystem::path& target);

// Returns the path of the newest backup below a root, to show it to an operator; empty: there is none.
std::filesystem::path FindNewest(const std::filesystem::path& root);

// A daemon calls the functions below first, in case its state directory is a copy of a backup. One thread calls them,
// before anything in the directory changes. The daemon renames backup.json to kRestoringFile while it takes over the
// copy, and to kRestoredFile afterwards.
inline constexpr char kRestoringFile[] = "restoring.json";
inline constexpr char kRestoredFile[] = "restored.json";

// Returns true if `state_dir` is a copy of a backup. All files have then been checked, and the caller must call
// EndRestore when the daemon has taken over the copy. If the daemon dies before EndRestore, the call at the next
// start returns true again. That call does not check the files, because the daemon may have changed some. Errors:
// DataLoss, naming the file, if a file differs from the manifest; those of Rename.
absl::StatusOr<bool> BeginRestore(const std::filesystem::path& state_dir);
absl::Status EndRestore(const std::filesystem::path& state_dir);

}  // namespace permafrost::backup
