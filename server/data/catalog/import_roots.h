// Decides which paths imports may read: those below an import root once every symlink and `..` is resolved.
// Threads: pure functions of the file system as it is now. Errors beside those told below: InvalidArgument for a path
// that the system can never follow, and those of SystemError.
#pragma once

#include <filesystem>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace permafrost::data {

// `source` resolved, a file or a directory below a root (or a root itself). Nothing tells whether a path outside
// exists. Errors: PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS), NotFound, InvalidArgument for a path that is
// neither.
absl::StatusOr<std::filesystem::path> ResolveSource(const std::filesystem::path& source,
                                                    std::span<const std::filesystem::path> roots);

// Checks that everything which an import of `source` (resolved) may read lies below a root too. For a directory: its
// arrays (*.npy, *.npz), raw/, split/ and what is in them. For a file: the file itself; files beside it are checked
// when they are opened (CheckInRoots), since a folder of many files has others that do not matter. Errors:
// PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS) naming the entry.
absl::Status CheckEntriesInRoots(const std::filesystem::path& source, std::span<const std::filesystem::path> roots);

// Ok if `path`, already free of links, lies below a root: ImportLimits::may_read. Errors: PermissionDenied, which does
// not tell the path, since a link led there; transient while it is below no root that can be resolved, and another
// cannot just now.
absl::Status CheckInRoots(const std::filesystem::path& path, std::span<const std::filesystem::path> roots);

}  // namespace permafrost::data
