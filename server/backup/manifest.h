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
  std::string version;     // version of the daemon that made the backup
  std::string request_id;  // request_id of the call that made the backup; empty: none
  absl::Time create_time;
  int64_t jobs = 0;
  std::vector<std::string> datasets_wanted;  // Summary documents this and the next two fields
  std::vector<JobId> jobs_anew;
  std::vector<std::string> imports;
  CopiedFiles files;
};

// Writes the first file of an unfinished backup: a mark at the place of the manifest. After Ok, it is on disk. The
// mark shows that the folder is an unfinished backup. It is not a manifest, so no daemon starts from the folder.
absl::Status MarkInTheMaking(const std::filesystem::path& directory);
// Returns whether the directory has the mark of MarkInTheMaking, or holds nothing but a temporary file that was about
// to become the mark.
bool IsInTheMaking(const std::filesystem::path& directory);
// Atomically replaces the mark with the manifest. After Ok, the manifest is on disk.
absl::Status WriteManifest(const std::filesystem::path& directory, const Manifest& manifest);
// Reads the manifest from the file named `file`. Returns nullopt if there is no such file. Errors: DataLoss if it is
// damaged; FailedPrecondition if its format is not known.
absl::StatusOr<std::optional<Manifest>> ReadManifest(const std::filesystem::path& directory,
                                                     const std::string& file = kManifestFile);
// Checks all files against the manifest. Errors: DataLoss, naming the first file that is missing or differs; those of
// reading.
absl::Status CheckFiles(const std::filesystem::path& directory, const Manifest& manifest);

}  // namespace permafrost::backup
