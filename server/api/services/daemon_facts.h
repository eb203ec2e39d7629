// The values that the daemon passes to the API: facts about itself, its clock, and a function that makes backups.
// Threads: plain values; any thread may call the functions in them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "backup/backup.h"
#include "backup/manifest.h"

namespace permafrost::api {

// The facts that do not change while the server runs.
struct ServerInfo {
  std::string version, git_commit, torch_version;
  std::string device;
  std::string instance;  // see v1::RunRankRequest.leader_instance
  int threads = 0;
  absl::Time start_time;
  std::string state_dir;
  std::vector<std::string> import_roots;
  std::string metrics_address;  // host:port as bound
  std::string socket_path;      // empty: there is no socket
  std::string auth;             // "none" or "token"
  bool tls = false;
  std::optional<backup::Manifest> restored;  // the backup from which the state was restored, without its files
};

struct ClockJump {
  absl::Duration by;  // how far the wall clock is ahead of the expected time; negative: behind
  absl::Time noticed;
};

// Functions that tell whether the wall clock has jumped, and that confirm a jump.
struct ClockWatch {
  // Returns the unconfirmed jump, if any. Does not wait for the disk.
  std::function<std::optional<ClockJump>()> jump = [] { return std::nullopt; };
  // Confirms that the clock is right. Returns the size of the jump, or zero if the clock had not jumped. Waits for
  // the disk. If `confirm` is empty, ConfirmClock is UNIMPLEMENTED.
  std::function<absl::StatusOr<absl::Duration>()> confirm;
};

// The arguments of a Backup call. See backup::Request.
struct BackupCall {
  std::string directory;
  bool with_datasets = false;
  std::string request_id;
  bool answered = false;
};

// Calls backup::Make with the daemon's own arguments added.
using MakeBackup =
    std::function<absl::StatusOr<backup::Summary>(const BackupCall& call, const backup::OnProgress& on_progress)>;

}  // namespace permafrost::api
