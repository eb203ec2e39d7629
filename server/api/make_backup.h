// The function by which the api room has a backup made.
// Threads: a value.
#pragma once

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "backup/backup.h"

namespace permafrost::api {

// The contents of a call; as in backup::Request.
struct BackupCall {
  std::string directory;
  bool with_datasets = false;
  std::string request_id;
  bool answered = false;
};

// backup::Make with what the daemon knows.
using MakeBackup =
    std::function<absl::StatusOr<backup::Summary>(const BackupCall& call, const backup::OnProgress& on_progress)>;

}  // namespace permafrost::api
