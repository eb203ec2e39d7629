// The facts that the daemon tells of itself to the api room.
// Threads: a value.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "backup/manifest.h"

namespace permafrost::api {

// The part that does not change while the server runs.
struct ServerInfo {
  std::string version, git_commit, torch_version;
  std::string device;
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

}  // namespace permafrost::api
