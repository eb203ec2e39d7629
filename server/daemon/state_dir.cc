#include "daemon/state_dir.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthers = 077;
constexpr mode_t kOwnerOnly = 0700;

// Both without symlinks and without a slash at the end.
bool Holds(const fs::path& outer, const fs::path& inner) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace

absl::StatusOr<fs::path> OpenStateDir(const fs::path& path) {
  umask(kOthers);
  PF_RETURN_IF_ERROR(CreateDirectories(path));
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return SystemError(errno, path, "stat");
  const mode_t mode = info.st_mode & 07777;
  if ((mode & kOthers) != 0) {
    if (chmod(path.c_str(), kOwnerOnly) != 0) return SystemError(errno, path, "close to other users (chmod 700)");
    telemetry::Log(telemetry::Severity::kWarning, absl::StrCat(path.string(), " could be opened by other users, mode ",
                                                               absl::StrFormat("%04o", mode), ": it is 0700 now"));
  }
  std::error_code error;
  fs::path resolved = fs::canonical(path, error);
  if (error) return SystemError(error.value(), path, "resolve");
  return resolved;
}

absl::StatusOr<std::vector<fs::path>> ResolveImportRoots(const std::vector<fs::path>& roots,
                                                         const fs::path& state_dir) {
  std::vector<fs::path> resolved;
  resolved.reserve(roots.size());
  for (const fs::path& root : roots) {
    std::error_code error;
    resolved.push_back(fs::canonical(root, error));
    if (error || !fs::is_directory(resolved.back(), error)) {
      return absl::FailedPreconditionError(
          absl::StrCat("--import-root \"", root.string(), "\" is not a directory that can be read"));
    }
    const bool in_it = Holds(state_dir, resolved.back());
    if (in_it || Holds(resolved.back(), state_dir)) {
      return absl::FailedPreconditionError(
          absl::StrCat("--import-root \"", root.string(), "\" ", in_it ? "is in" : "holds", " the state directory ",
                       state_dir.string(), ", which imports must not read: accepted: a directory beside it"));
    }
  }
  return resolved;
}

}  // namespace permafrost
