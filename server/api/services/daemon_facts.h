// The daemon hands this to the API: facts about itself, its clock, and a function that makes backups.
// Threads: values; the functions in them are called on any thread.
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
  std::string instance;  // as v1::RunRankRequest.leader_instance
  int threads = 0;
  absl::Time start_time;
  std::string state_dir;
  std::vector<std::string> import_roots;
  std::string metrics_address;  // host:port as bound
  std::string socket_path;      // empty: there is none
  std::string auth;             // "none" or "token"
  bool tls = false;
  std::optional<backup::Manifest> restored;  // the backup that the state was, without its files
};

struct ClockJump {
  absl::Duration by;  // ahead of what was seen to pass; negative: behind
  absl::Time noticed;
};

// The wall clock as the server may believe it.
struct ClockWatch {
  // The jump that nobody has confirmed. Waits for no disk.
  std::function<std::optional<ClockJump>()> jump = [] { return std::nullopt; };
  // Believes the clock from now on, and returns what it had jumped by; zero: nothing. Waits for the disk. Empty:
  // ConfirmClock is UNIMPLEMENTED.
  std::function<absl::StatusOr<absl::Duration>()> confirm;
};

// The contents of a call of Backup; as in backup::Request.
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
