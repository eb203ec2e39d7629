// A copy of the state directory of a running daemon that another daemon goes on from, and what that one does first.
//
// A backup is a folder: permafrost.db, tokens.json, plans/, jobs/ID/ (log, initial weights, artifacts, the newest whole
// checkpoint), datasets/ where that was asked for, and backup.json with size and XXH3 of each file. It is made under
// the name .tmp-NAME, synced, and renamed: a folder of its name is a whole backup.
//
// The order makes it consistent, as a crash leaves the state: the checkpoint of a job that has not ended is copied
// before the database, so that every epoch and command that the checkpoint knows is on record; files of a job that has
// ended are copied after it, so that a job on record as succeeded has its artifacts.
// Threads: safe anywhere; one backup at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backup/copier.h"
#include "base/id.h"

namespace permafrost::backup {

inline constexpr char kManifestFile[] = "backup.json";
// What a daemon that has taken a backup up renames it to.
inline constexpr char kRestoredFile[] = "restored.json";

struct Summary {
  std::filesystem::path path;
  int64_t files = 0, bytes = 0, jobs = 0;
  // Datasets that are not in it and that jobs which have not ended use: they are to be imported before these go on.
  std::vector<std::string> datasets_wanted;
};

struct Request {
  std::filesystem::path state_dir;
  std::filesystem::path root;  // a directory outside of it; empty: there is none
  std::string directory;       // NAME, or ROOT/NAME
  bool with_datasets = false;
  std::string version;  // of the daemon
};

// Errors: FailedPrecondition without a root (reason NO_BACKUP_ROOT); InvalidArgument with a violation of "directory";
// AlreadyExists where something is there that is not an empty folder; ResourceExhausted where the disk has no room for
// it; DataLoss where the database is damaged; Cancelled; those of SystemError. Nothing stays on an error.
absl::StatusOr<Summary> Make(const Request& request, const OnProgress& on_progress);

// Where `state_dir` is a copy of a backup that no daemon has taken up yet: checks every file of it. True: it is one,
// and MarkRestored is to be called once the daemon has done what is its to do. Errors: DataLoss, naming the file, where
// the copy is not what the backup was.
absl::StatusOr<bool> CheckRestored(const std::filesystem::path& state_dir);
absl::Status MarkRestored(const std::filesystem::path& state_dir);
// The newest backup below a root, for an operator who needs one; empty: there is none.
std::filesystem::path FindNewest(const std::filesystem::path& root);

}  // namespace permafrost::backup
