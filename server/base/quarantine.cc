#include "base/quarantine.h"

#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/status.h"

namespace permafrost {

namespace fs = std::filesystem;

absl::StatusOr<fs::path> MoveToQuarantine(const fs::path& directory, const fs::path& path) {
  const fs::path quarantine = directory / kQuarantine;
  PF_RETURN_IF_ERROR(CreateDirectories(quarantine));
  const std::string name =
      absl::StrCat(absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()), "-", path.filename().string());
  fs::path to = quarantine / name;
  std::error_code error;
  for (int n = 2; fs::exists(fs::symlink_status(to, error)); ++n) to = quarantine / absl::StrCat(name, "-", n);
  fs::rename(path, to, error);
  if (error) return SystemError(error.value(), path, absl::StrCat("move to ", to.string()));
  PF_RETURN_IF_ERROR(SyncDirectory(quarantine));
  PF_RETURN_IF_ERROR(SyncDirectory(path.parent_path()));
  return to;
}

}  // namespace permafrost
