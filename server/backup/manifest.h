// backup.json: what a backup holds, with checksums.
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

// A file of a backup, as the manifest knows it.
struct CopiedFile {
  uint64_t bytes = 0;
  std::string xxh3;
};
// Keyed by path below the backup, with '/'.
using CopiedFiles = std::map<std::string, CopiedFile>;

inline constexpr char kManifestFile[] = "backup.json";

struct Manifest {
  std::string version;     // of the daemon that made it
  std::string request_id;  // of the call that made it; empty: it had none
  absl::Time create_time;
  int64_t jobs = 0;
  std::vector<std::string> datasets_wanted;  // this and the next two as in Summary
  std::vector<JobId> jobs_anew;
  std::vector<std::string> imports;
  CopiedFiles files;
};

// The first file of a backup in the making: no manifest, so that no daemon goes on from a part, but it says what the
// folder is. On disk when Ok.
absl::Status MarkInTheMaking(const std::filesystem::path& directory);
// Returns whether the directory bears that mark, or holds nothing yet but what becomes it.
bool IsInTheMaking(const std::filesystem::path& directory);
// In place of that mark, whole or not at all; on disk when Ok.
absl::Status WriteManifest(const std::filesystem::path& directory, const Manifest& manifest);
// Returns nullopt if there is none. Errors: DataLoss if it is damaged; FailedPrecondition if its format is not known.
// `file`: its name there.
absl::StatusOr<std::optional<Manifest>> ReadManifest(const std::filesystem::path& directory,
                                                     const std::string& file = kManifestFile);
// DataLoss, naming the first file that is missing or not as the manifest says; those of reading.
absl::Status CheckFiles(const std::filesystem::path& directory, const Manifest& manifest);

}  // namespace permafrost::backup
