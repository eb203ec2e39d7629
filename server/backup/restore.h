// The first work of a daemon whose state directory is a copy of a backup.
// Threads: one, before anything of the state directory changes.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace permafrost::backup {

// backup.json, while a daemon takes the copy up, and once it has.
inline constexpr char kRestoringFile[] = "restoring.json";
inline constexpr char kRestoredFile[] = "restored.json";

// True: `state_dir` is a copy of a backup, and EndRestore is to be called once the daemon has done what is its to do.
// Every file of it has been checked then, once: what the daemon does next changes some, and after its death in the
// midst of that the next start is told true again, without a check. Errors: DataLoss, naming the file, where the copy
// is not what the backup was; those of Rename.
absl::StatusOr<bool> BeginRestore(const std::filesystem::path& state_dir);
absl::Status EndRestore(const std::filesystem::path& state_dir);

}  // namespace permafrost::backup
