// The first work of a daemon whose state directory is a copy of a backup.
// Threads: one, before the first job runs.
#pragma once

#include <filesystem>
#include <optional>

#include "absl/status/status.h"
#include "backup/manifest.h"
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"

namespace permafrost {

// Pauses the jobs that wait for the device and whose dataset is not there, since they would fail where an operator only
// has to import it again; the log tells of each. Marks the state directory as taken up, so that this is done once;
// after a death before that it is done again, and finds the jobs paused. Errors: of the store; those of Rename.
absl::Status TakeUpRestored(const std::filesystem::path& state_dir, const data::Catalog& catalog,
                            jobs::JobManager& jobs);

// The backup that the state directory was, by restored.json, without its files; nullopt: it was none. One that cannot
// be read is told in the log.
std::optional<backup::Manifest> ReadRestored(const std::filesystem::path& state_dir);

}  // namespace permafrost
