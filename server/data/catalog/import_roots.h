// Which paths imports may read: what lies below an import root once every symlink and `..` is resolved.
// Threads: pure functions of the file system as it is now. Errors beside those told below: InvalidArgument for a path
// that the system can never follow, and those of SystemError.
#pragma once

#include <filesystem>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace permafrost::data {

// `source` resolved, a file or a directory below a root (or a root itself). Whether a path outside exists is not told.
// Errors: PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS), NotFound, InvalidArgument for what is neither.
absl::StatusOr<std::filesystem::path> ResolveSource(const std::filesystem::path& source,
                                                    std::span<const std::filesystem::path> roots);

// Whether everything that an import of `source` (resolved) may read lies below a root too. Of a directory: its
// arrays (*.npy, *.npz), raw/, split/ and what is in them. Of a file: itself; what stands beside it is asked about when
// it is opened (CheckInRoots), since a folder of many files has others that do not matter. Errors:
// PermissionDenied (reason PATH_OUTSIDE_IMPORT_ROOTS) naming the entry.
absl::Status CheckEntriesInRoots(const std::filesystem::path& source, std::span<const std::filesystem::path> roots);

// Whether `path`, already free of links, lies below a root: ImportLimits::may_read. Errors: PermissionDenied, which
// does not tell the path, since a link led there; transient while it is below no root that can be resolved, and another
// cannot just now.
absl::Status CheckInRoots(const std::filesystem::path& path, std::span<const std::filesystem::path> roots);

}  // namespace permafrost::data
