// Files that cannot be proven to be the daemon's own are moved aside, and never removed.
// Threads: safe anywhere; callers keep two movers from one path.
#pragma once

#include <filesystem>

#include "absl/status/statusor.h"

namespace permafrost {

// The folder for them, in the directory where they were found.
inline constexpr char kQuarantine[] = ".quarantine";

// Moves `path` to `directory`/.quarantine/TIME-NAME, under a name that nothing has. Returns where it lies; durable when
// Ok. Errors: those of SystemError.
absl::StatusOr<std::filesystem::path> MoveToQuarantine(const std::filesystem::path& directory,
                                                       const std::filesystem::path& path);

}  // namespace permafrost
