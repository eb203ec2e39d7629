// Copies what a backup holds beside jobs and datasets, also what changes while it is copied.
// Threads: one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backup/copier.h"

namespace permafrost::backup {

// The audit log and those before it (audit.jsonl, .1 ...), as far as they go now. Errors: Unavailable where they are
// rotated faster than they can be copied; the copier's.
absl::Status CopyAudit(const std::filesystem::path& state_dir, Copier& copier);

// The records of imports that have not ended well (datasets/.imports): another server begins those that were wanted
// anew, where it sees their sources. Returns their datasets, sorted. To be called before datasets are copied: one whose
// import ends meanwhile is then in the backup in one way or the other. Errors: the copier's.
absl::StatusOr<std::vector<std::string>> CopyImports(const std::filesystem::path& state_dir, Copier& copier);

}  // namespace permafrost::backup
