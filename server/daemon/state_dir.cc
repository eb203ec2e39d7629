#include "daemon/state_dir.h"

#include <sys/stat.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "backup/backup.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kOthers = 077;
constexpr mode_t kOwnerOnly = 0700;

// Returns whether `inner` is `outer` or lies in it. Both paths have no symlinks and no trailing slash.
bool Holds(const fs::path& outer, const fs::path& inner) {
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

// Returns whether the directory may be closed to others, because it is empty or contains files that a daemon left
// there.
bool IsOurs(const fs::path& path) {
  std::error_code error;
  return fs::is_empty(path, error) || fs::exists(path / "permafrost.db", error) || fs::exists(path / "lock", error);
}

}  // namespace

absl::StatusOr<fs::path> OpenStateDir(const fs::path& path) {
  umask(kOthers);
  PF_RETURN_IF_ERROR(CreateDirectories(path));
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return SystemError(errno, path, "stat");
  if (info.st_uid != geteuid()) {
    return absl::FailedPreconditionError(
        absl::StrCat("--state-dir \"", path.string(), "\" belongs to user ", info.st_uid,
                     ", and the daemon runs as user ", geteuid(),
                     ", so that its secrets would not be its own: accepted: a directory in it that the daemon "
                     "makes"));
  }
  const mode_t mode = info.st_mode & 07777;
  if ((mode & kOthers) != 0) {
    if (!IsOurs(path)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "--state-dir \"", path.string(), "\" is open to other users, mode ", absl::StrFormat("%04o", mode),
          ", and holds other files: accepted: a directory of its own, empty or not there yet"));
    }
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

absl::StatusOr<fs::path> ResolveBackupRoot(const fs::path& root, const fs::path& state_dir,
                                           const std::vector<fs::path>& import_roots) {
  if (root.empty()) return fs::path();
  std::error_code error;
  fs::path resolved = fs::canonical(root, error);
  if (error == std::errc::no_such_file_or_directory) {
    return absl::FailedPreconditionError(
        absl::StrCat("--backup-root \"", root.string(), "\" does not exist: make it, or name a directory that does"));
  }
  if (error || !fs::is_directory(resolved, error) || ::access(resolved.c_str(), W_OK) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("--backup-root \"", root.string(), "\" is not a directory that can be written"));
  }
  std::vector<std::pair<const char*, fs::path>> others = {{"the state directory", state_dir}};
  for (const fs::path& import_root : import_roots) others.emplace_back("the import root", import_root);
  for (const auto& [what, path] : others) {
    const bool in_it = Holds(path, resolved);
    if (in_it || Holds(resolved, path)) {
      return absl::FailedPreconditionError(absl::StrCat("--backup-root \"", root.string(), "\" ",
                                                        in_it ? "is in " : "holds ", what, " ", path.string(),
                                                        ": accepted: a directory beside it"));
    }
  }
  return resolved;
}

namespace {

using telemetry::Log;
using telemetry::Severity;

}  // namespace

std::optional<backup::Manifest> ReadRestored(const std::filesystem::path& state_dir) {
  absl::StatusOr<std::optional<backup::Manifest>> manifest = backup::ReadManifest(state_dir, backup::kRestoredFile);
  if (!manifest.ok()) {
    Log(Severity::kWarning, StdView(manifest.status().message()));
    return std::nullopt;
  }
  if (*manifest) (*manifest)->files.clear();
  return *std::move(manifest);
}

absl::Status TakeUpRestored(const std::filesystem::path& state_dir, const data::Catalog& catalog,
                            jobs::JobManager& jobs) {
  int64_t paused = 0;
  std::string token;
  do {
    PF_ASSIGN_OR_RETURN(const jobs::JobPage page,
                        jobs.List(0, token, {.states = {jobs::JobState::kQueued}, .filter = ""}));
    for (const jobs::Job& job : page.jobs) {
      const DatasetId& dataset = job.spec.train.dataset;
      // Only a READY dataset counts: an unfinished import starts again, and may fail this time.
      const auto known = catalog.Get(dataset);
      if (known.ok() ? known->state == data::DatasetState::kReady : !absl::IsNotFound(known.status())) continue;
      PF_RETURN_IF_ERROR(jobs.Pause(job.id).status());
      ++paused;
      const std::string_view first = known.ok() ? "when its import has ended" : "import it again, then";
      Log(Severity::kWarning,
          absl::StrCat("job ", job.id.value(), " is paused: the backup is without its dataset ", dataset.value(), "; ",
                       AbslView(first), " permafrost job resume ", job.id.value()));
    }
    token = page.next_page_token;
  } while (!token.empty());
  PF_RETURN_IF_ERROR(backup::EndRestore(state_dir));
  const std::optional<backup::Manifest> taken_up = ReadRestored(state_dir);
  for (const JobId& job : taken_up ? taken_up->jobs_anew : std::vector<JobId>()) {
    telemetry::LogOfJob(Severity::kWarning, job.value(), "begins anew: its checkpoints were all damaged in the backup");
  }
  for (const std::string& dataset : taken_up ? taken_up->imports : std::vector<std::string>()) {
    Log(Severity::kWarning, absl::StrCat("the import of ", dataset, " had not ended in the backup: it begins anew"));
  }
  Log(Severity::kInfo, absl::StrCat("goes on from a backup, every file of which is whole; ", paused,
                                    paused == 1 ? " job waits for its dataset" : " jobs wait for their datasets"));
  return absl::OkStatus();
}

absl::StatusOr<EndpointFile> EndpointFile::Write(const std::filesystem::path& state_dir, const Endpoint& endpoint) {
  std::filesystem::path path = state_dir / "endpoint.json";
  const nlohmann::json content = {{"grpc", endpoint.grpc}, {"metrics", endpoint.metrics}, {"socket", endpoint.socket},
                                  {"auth", endpoint.auth}, {"tls", endpoint.tls},         {"pid", getpid()}};
  PF_RETURN_IF_ERROR(WriteFileAtomic(path, content.dump() + "\n"));
  return EndpointFile(std::move(path));
}

EndpointFile::EndpointFile(std::filesystem::path path) : path_(std::move(path)) {}

EndpointFile::EndpointFile(EndpointFile&& other) noexcept : path_(std::exchange(other.path_, {})) {}

EndpointFile::~EndpointFile() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove(path_, ignored);
}

}  // namespace permafrost
