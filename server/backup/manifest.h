// backup.json, the manifest of a backup: what it holds, with checksums.
// Threads: safe anywhere.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/id.h"

namespace permafrost::backup {

// A file of a backup, as the manifest describes it.
struct CopiedFile {
  uint64_t bytes = 0;
  std::string xxh3;
};
// Files by path below the backup, with '/' as separator.
using CopiedFiles = std::map<std::string, CopiedFile>;

inline constexpr char kManifestFile[] = "backup.json";

struct Manifest {
  std::string version;     // of the daemon that made it
  std::string request_id;  // request_id of the call that made it; empty: none
  absl::Time create_time;
  int64_t jobs = 0;
  std::vector<std::string> datasets_wanted;  // this and the next two: see Summary
  std::vector<JobId> jobs_anew;
  std::vector<std::string> imports;
  CopiedFiles files;
};

// Writes the first file of a backup in the making, a mark at the place of the manifest; on disk when Ok. It is no
// manifest, so no daemon goes on from an unfinished backup, but it says what the folder is.
absl::Status MarkInTheMaking(const std::filesystem::path& directory);
// Returns whether the directory has that mark, or at most a file that is about to become the mark.
bool IsInTheMaking(const std::filesystem::path& directory);
// Replaces that mark with the manifest, atomically; on disk when Ok.
absl::Status WriteManifest(const std::filesystem::path& directory, const Manifest& manifest);
// Reads the manifest, whose file is called `file`. Returns nullopt if there is none. Errors: DataLoss if it is
// damaged; FailedPrecondition if its format is not known.
absl::StatusOr<std::optional<Manifest>> ReadManifest(const std::filesystem::path& directory,
                                                     const std::string& file = kManifestFile);
// Checks all files against the manifest. Errors: DataLoss, naming the first file that is missing or differs; those of
// reading.
absl::Status CheckFiles(const std::filesystem::path& directory, const Manifest& manifest);

}  // namespace permafrost::backup
