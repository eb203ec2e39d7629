// The state directory, which only the daemon's user may open. Also checks the directories of imports and backups, and
// takes up a copy of a backup. Threads: one, before others start.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backup/manifest.h"
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"

namespace permafrost {

// Creates the directory if it is missing. If other users could open the directory, closes it to them and logs that.
// From then on, all files that this process creates have mode 0600, and all directories 0700. Returns the path
// without symlinks. Errors: FailedPrecondition if another user owns the directory, or if the directory is open to
// others and holds files that no daemon left there; also the errors of SystemError.
absl::StatusOr<std::filesystem::path> OpenStateDir(const std::filesystem::path& path);

// Returns the roots without symlinks. Errors: FailedPrecondition for a root that is not a directory.
// FailedPrecondition also for a root that contains the state directory or lies in it, because an import could then
// read tokens.
absl::StatusOr<std::vector<std::filesystem::path>> ResolveImportRoots(const std::vector<std::filesystem::path>& roots,
                                                                      const std::filesystem::path& state_dir);

// Checks and returns --backup-root as ResolveImportRoots does with an import root. The backup root must not overlap
// an import root either. Empty: there is no backup root.
absl::StatusOr<std::filesystem::path> ResolveBackupRoot(const std::filesystem::path& root,
                                                        const std::filesystem::path& state_dir,
                                                        const std::vector<std::filesystem::path>& import_roots);

// Takes up a state directory that is a copy of a backup, before any job runs. Pauses each queued job whose dataset is
// missing, and logs that. Such a job would otherwise fail, although an operator only has to import the dataset again.
// Then marks the state directory as taken up, so that later starts do not call this function. If the daemon dies
// before it sets the mark, the next start repeats the work and finds the jobs paused already. Errors: those of the
// store and of Rename.
absl::Status TakeUpRestored(const std::filesystem::path& state_dir, const data::Catalog& catalog,
                            jobs::JobManager& jobs);

// Returns the manifest, without its list of files, of the backup from which the state directory was copied. The
// manifest is read from restored.json. Returns nullopt if the state directory is no copy. If the file cannot be read,
// logs that and returns nullopt.
std::optional<backup::Manifest> ReadRestored(const std::filesystem::path& state_dir);

struct Endpoint {
  std::string grpc, metrics;  // host:port as bound
  std::string socket;         // path; empty: there is no socket
  std::string auth = "none";  // or "token"
  bool tls = false;
};

// STATE_DIR/endpoint.json, from which scripts read the addresses of the daemon. It exists while the daemon serves.
// Threads: one.
class EndpointFile {
 public:
  // Errors: those of WriteFileAtomic.
  static absl::StatusOr<EndpointFile> Write(const std::filesystem::path& state_dir, const Endpoint& endpoint);
  EndpointFile(EndpointFile&& other) noexcept;
  EndpointFile& operator=(EndpointFile&&) = delete;
  // Removes the file.
  ~EndpointFile();

 private:
  explicit EndpointFile(std::filesystem::path path);

  std::filesystem::path path_;  // empty once moved from
};

}  // namespace permafrost
