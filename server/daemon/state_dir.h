// The folder that everything is kept in, which only the daemon's user may open, and where imports may read.
// Threads: one, before others start.
#pragma once

#include <filesystem>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace permafrost {

// Makes it where it is missing, and closes one that others may open, which the daemon's log tells. From here on what
// this process makes is its user's alone: files 0600, folders 0700. Errors: those of SystemError. Returns it without
// symlinks.
absl::StatusOr<std::filesystem::path> OpenStateDir(const std::filesystem::path& path);

// The roots without symlinks. Errors: FailedPrecondition for one that is no directory, that holds the state directory,
// or that is in it: an import could then read tokens.
absl::StatusOr<std::vector<std::filesystem::path>> ResolveImportRoots(const std::vector<std::filesystem::path>& roots,
                                                                      const std::filesystem::path& state_dir);

// As ResolveImportRoots, for --backup-root, which no import may read either; empty: there is none.
absl::StatusOr<std::filesystem::path> ResolveBackupRoot(const std::filesystem::path& root,
                                                        const std::filesystem::path& state_dir,
                                                        const std::vector<std::filesystem::path>& import_roots);

}  // namespace permafrost
