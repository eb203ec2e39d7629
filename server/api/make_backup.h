// How the api room has a backup made.
// Threads: a value.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "backup/backup.h"

namespace permafrost::api {

// backup::Make with what the daemon knows. `directory`, `with_datasets`: of its Request.
using MakeBackup = std::function<absl::StatusOr<backup::Summary>(const std::string& directory, bool with_datasets,
                                                                 const backup::OnProgress& on_progress)>;

}  // namespace permafrost::api
