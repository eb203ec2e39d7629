#include "backup/backup_root.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "backup/manifest.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost::backup {
namespace {

namespace fs = std::filesystem;
using telemetry::Log;
using telemetry::Severity;

constexpr char kInTheMaking[] = ".tmp-";
constexpr char kRootLock[] = ".lock";
constexpr size_t kMaxNameBytes = 128;

bool IsBackupName(const std::string& name) {
  const auto is_plain = [](char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; };
  return !name.empty() && name.size() <= kMaxNameBytes && name.front() != '.' && std::ranges::all_of(name, is_plain);
}

fs::path MakingOf(const fs::path& target) {
  return target.parent_path() / absl::StrCat(kInTheMaking, target.filename().string());
}

bool IsRealDirectory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(fs::symlink_status(path, error));
}

}  // namespace

absl::StatusOr<fs::path> TargetOf(const fs::path& root, const std::string& directory) {
  if (root.empty()) {
    return WithReason(absl::FailedPreconditionError("the server was started without --backup-root DIR, which names the "
                                                    "directory of its machine that backups are written below"),
                      "NO_BACKUP_ROOT");
  }
  fs::path name = directory;
  if (name.is_absolute() && name.lexically_normal().parent_path() == root) name = name.filename();
  if (IsBackupName(name.string())) return root / name;
  Violations violations;
  violations.Add("directory",
                 absl::StrCat("\"", directory, "\": accepted: a name of letters, digits, '.', '-' and '_' ",
                              "that does not begin with '.', or that name below ", root.string()));
  return violations.ToStatus();
}

absl::Status CheckFree(const fs::path& target) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(target, error);
  if (status.type() == fs::file_type::not_found) return absl::OkStatus();
  if (error) return SystemError(error.value(), target, "stat");
  if (fs::is_symlink(status)) {
    return absl::AlreadyExistsError(absl::StrCat(
        target.string(), " is a symbolic link: name what is not there, or an empty directory of --backup-root itself"));
  }
  if (fs::is_directory(status) && fs::is_empty(target, error)) return absl::OkStatus();
  return absl::AlreadyExistsError(absl::StrCat(target.string(), " is there already, and not an empty directory"));
}

absl::StatusOr<FileLock> LockRoot(const fs::path& root) {
  absl::StatusOr<FileLock> lock = FileLock::Acquire(root / kRootLock);
  if (!absl::IsFailedPrecondition(lock.status())) return lock;
  return WithReason(Annotate(lock.status(), "another backup is made below this --backup-root; try again once it is"),
                    "BACKUP_UNDER_WAY");
}

void RemoveLeftovers(const fs::path& root) {
  const auto names = ListDirectory(root);
  if (!names.ok()) return Log(Severity::kWarning, StdView(names.status().message()));
  for (const std::string& name : names->value_or(std::vector<std::string>())) {
    const fs::path path = root / name;
    if (!name.starts_with(kInTheMaking) || !IsRealDirectory(path)) continue;
    if (!IsInTheMaking(path)) {
      Log(Severity::kWarning, absl::StrCat(path.string(), " stays: nothing in it says that it is a part of a backup"));
      continue;
    }
    const absl::Status removed = RemoveMaking(path);
    if (!removed.ok()) {
      Log(Severity::kWarning, absl::StrCat("a backup that was not finished stays: ", removed.message()));
      continue;
    }
    Log(Severity::kInfo, absl::StrCat("removed ", path.string(), ", a backup that was not finished"));
  }
}

absl::StatusOr<fs::path> CreateMaking(const fs::path& target) {
  fs::path making = MakingOf(target);
  std::error_code error;
  if (!fs::create_directory(making, error)) {
    if (error) return SystemError(error.value(), making, "create");
    return absl::AlreadyExistsError(
        absl::StrCat(making.string(), " is there, and no part of a backup: move it away, or choose another name"));
  }
  absl::Status marked = MarkInTheMaking(making);
  if (marked.ok()) return making;
  RemoveMaking(making).IgnoreError();
  return marked;
}

absl::Status RemoveMaking(const fs::path& making) {
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(making));
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    if (name != kManifestFile) PF_RETURN_IF_ERROR(RemoveAll(making / name));
  }
  return RemoveAll(making);
}

absl::Status PublishMaking(const fs::path& making, const fs::path& target) {
  // This fails if it is anything but an empty directory, which is then in the way.
  rmdir(target.c_str());
  return PublishDirectory(making, target);
}

fs::path FindNewest(const fs::path& root) {
  fs::path newest;
  fs::file_time_type newest_time;
  std::error_code error;
  if (root.empty()) return newest;
  for (const auto& entry : fs::directory_iterator(root, error)) {
    std::error_code ignored;
    const auto time = fs::last_write_time(entry.path() / kManifestFile, ignored);
    if (ignored || entry.path().filename().string().starts_with('.')) continue;
    if (newest.empty() || time > newest_time) {
      newest = entry.path();
      newest_time = time;
    }
  }
  return newest;
}

}  // namespace permafrost::backup
