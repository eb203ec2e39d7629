// The directory that backups are written below: their names, and one backup at a time.
// A backup in the making is .tmp-NAME; its backup.json, which is written first, says so. A folder without that is never
// touched.
// Threads: safe anywhere.
#pragma once

#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"

namespace permafrost::backup {

// ROOT/NAME of what a request calls `directory`. Errors: FailedPrecondition without a root (reason NO_BACKUP_ROOT);
// InvalidArgument with a violation of "directory".
absl::StatusOr<std::filesystem::path> TargetOf(const std::filesystem::path& root, const std::string& directory);
// Ok: nothing is there, or an empty directory, no link to one. Errors: AlreadyExists.
absl::Status CheckFree(const std::filesystem::path& target);
// Held while a backup is made, so that two daemons of one root do not make two at once. FailedPrecondition (reason
// BACKUP_UNDER_WAY) where another process, or another call of this one, makes one.
absl::StatusOr<FileLock> LockRoot(const std::filesystem::path& root);
// Under the lock: removes the parts of backups whose daemon died. A leftover that cannot be removed is logged.
void RemoveLeftovers(const std::filesystem::path& root);
// Under the lock: the new folder that a backup of this target is made in. AlreadyExists where something of its name is
// there that is no part of a backup.
absl::StatusOr<std::filesystem::path> CreateMaking(const std::filesystem::path& target);
// The mark that says that it is of a backup goes last.
absl::Status RemoveMaking(const std::filesystem::path& making);
// An empty directory at `target` makes room for the backup; whatever else is there stays and is in its way.
absl::Status PublishMaking(const std::filesystem::path& making, const std::filesystem::path& target);
// The newest backup below a root, for an operator who needs one; empty: there is none.
std::filesystem::path FindNewest(const std::filesystem::path& root);

}  // namespace permafrost::backup
