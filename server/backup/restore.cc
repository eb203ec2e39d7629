#include "backup/restore.h"

#include <cerrno>
#include <optional>
#include <system_error>

#include "backup/manifest.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost::backup {

namespace fs = std::filesystem;

absl::StatusOr<bool> BeginRestore(const fs::path& state_dir) {
  PF_ASSIGN_OR_RETURN(const std::optional<Manifest> manifest, ReadManifest(state_dir));
  if (!manifest) {
    std::error_code error;
    const bool begun = fs::exists(state_dir / kRestoringFile, error);
    if (error) return SystemError(error.value(), state_dir / kRestoringFile, "stat");
    return begun;
  }
  PF_RETURN_IF_ERROR(CheckFiles(state_dir, *manifest));
  PF_RETURN_IF_ERROR(Rename(state_dir / kManifestFile, state_dir / kRestoringFile));
  return true;
}

absl::Status EndRestore(const fs::path& state_dir) {
  return Rename(state_dir / kRestoringFile, state_dir / kRestoredFile);
}

}  // namespace permafrost::backup
