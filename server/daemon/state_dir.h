// The folder that everything is kept in, which only the daemon's user may open: where imports may read, and what is
// done first where it is a copy of a backup. Threads: one, before others start.
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

// The first work of a daemon whose state directory is a copy of a backup, before the first job runs. Pauses the jobs
// that wait for the device and whose dataset is not there, since they would fail where an operator only has to import
// it again; the log tells of each. Marks the state directory as taken up, so that this is done once; after a death
// before that it is done again, and finds the jobs paused. Errors: of the store; those of Rename.
absl::Status TakeUpRestored(const std::filesystem::path& state_dir, const data::Catalog& catalog,
                            jobs::JobManager& jobs);

// The backup that the state directory was, by restored.json, without its files; nullopt: it was none. One that cannot
// be read is told in the log.
std::optional<backup::Manifest> ReadRestored(const std::filesystem::path& state_dir);

struct Endpoint {
  std::string grpc, metrics;  // host:port as bound
  std::string socket;         // path; empty: there is none
  std::string auth = "none";  // or "token"
  bool tls = false;
};

// STATE_DIR/endpoint.json, where scripts read at which addresses the daemon serves: there while it does.
// Threads: one.
class EndpointFile {
 public:
  // Errors: those of WriteFileAtomic.
  static absl::StatusOr<EndpointFile> Write(const std::filesystem::path& state_dir, const Endpoint& endpoint);
  EndpointFile(EndpointFile&& other) noexcept;
  EndpointFile& operator=(EndpointFile&&) = delete;
  // Removes it.
  ~EndpointFile();

 private:
  explicit EndpointFile(std::filesystem::path path);

  std::filesystem::path path_;  // empty once moved from
};

}  // namespace permafrost
