// backup.json: what a backup holds, with checksums.
// Threads: safe anywhere.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backup/copier.h"

namespace permafrost::backup {

struct Manifest {
  std::string version;  // of the daemon that made it
  CopiedFiles files;
};

// Synced when Ok.
absl::Status WriteManifest(const std::filesystem::path& directory, const Manifest& manifest);
// nullopt: there is none. DataLoss: it is damaged; FailedPrecondition: of a format that is not known.
absl::StatusOr<std::optional<Manifest>> ReadManifest(const std::filesystem::path& directory);
// DataLoss, naming the first file that is missing or not as the manifest says; those of reading.
absl::Status CheckFiles(const std::filesystem::path& directory, const Manifest& manifest);

}  // namespace permafrost::backup
