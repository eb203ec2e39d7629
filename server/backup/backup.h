// Makes a copy of the state directory of a running daemon, and begins the work of another daemon that goes on from it.
//
// A backup is a folder: permafrost.db, tokens.json, audit.jsonl, plans/, programs/, jobs/ID/ (logs, initial weights,
// program, artifacts, the newest whole checkpoint), the records of imports that have not ended, datasets/ where that
// was asked for, and backup.json with size and XXH3 of each file. It is made under the name .tmp-NAME, synced, and
// renamed: a folder of its name is a whole backup.
//
// The order makes it consistent, as a crash leaves the state: the checkpoint of a job that has not ended is copied
// before the database, so that every epoch and command that the checkpoint knows is on record; files of a job that has
// ended are copied after it, so that a job on record as succeeded has its artifacts.
// Threads: safe anywhere; of two backups below one root the second is refused.
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
  // Datasets that jobs which have not ended use and that are not in it, or are there under another uid than these know:
  // they are to be imported before the jobs go on.
  std::vector<std::string> datasets_wanted;
  // Jobs that have not ended and whose checkpoints are all damaged or gone: another daemon starts them anew.
  std::vector<JobId> jobs_anew;
  // Datasets whose imports have not ended: another daemon begins them anew, where it sees what they read. Imports of
  // uploads are never among them.
  std::vector<std::string> imports;
};

struct Request {
  std::filesystem::path state_dir;
  std::filesystem::path root;  // a directory outside of it; empty: there is none
  std::string directory;       // NAME, or ROOT/NAME
  bool with_datasets = false;
  std::string version;  // of the daemon
  // The reserve of the disk of `root`, looked at before each piece is copied.
  DiskReserve reserve;
  // The id of the call, for one that comes again; empty: none.
  std::string request_id;
  // The call was answered before: what it made is told, and nothing made.
  bool answered = false;
};

// Errors: FailedPrecondition without a root (reason NO_BACKUP_ROOT), or while another backup is made below it (reason
// BACKUP_UNDER_WAY); InvalidArgument with a violation of "directory"; AlreadyExists where something is there that is
// not an empty folder, unless a call with this request_id made it; NotFound where one that was answered made it, and it
// is gone; ResourceExhausted where the disk has no room for it (reason DISK_NEARLY_FULL); DataLoss where the database
// is damaged; Unavailable where the state changes faster than it can be copied; Cancelled; those of SystemError.
// Nothing stays on an error.
absl::StatusOr<Summary> Make(const Request& request, const OnProgress& on_progress);

// A backup in the making is .tmp-NAME; its backup.json, which is written first, says so. A folder without that is never
// touched. Returns the new folder that a backup of `target`, ROOT/NAME, is made in: under the root's lock. Errors:
// AlreadyExists where something of its name is there that is no part of a backup; those of SystemError.
absl::StatusOr<std::filesystem::path> CreateMaking(const std::filesystem::path& target);

// The newest backup below a root, for an operator who needs one; empty: there is none.
std::filesystem::path FindNewest(const std::filesystem::path& root);

// The first work of a daemon whose state directory is a copy of a backup, before anything of the directory changes, on
// one thread.
// backup.json, while a daemon takes the copy up, and once it has.
inline constexpr char kRestoringFile[] = "restoring.json";
inline constexpr char kRestoredFile[] = "restored.json";

// Returns true if `state_dir` is a copy of a backup; EndRestore must then be called once the daemon has done its part.
// Every file has been checked by then, once. If the daemon dies in between, the next start gets true again, without a
// check, because the daemon has changed some files. Errors: DataLoss, naming the file, if the copy is not what the
// backup was; those of Rename.
absl::StatusOr<bool> BeginRestore(const std::filesystem::path& state_dir);
absl::Status EndRestore(const std::filesystem::path& state_dir);

}  // namespace permafrost::backup
