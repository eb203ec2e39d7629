// Calls, by gRPC, the other daemons of a job that this daemon leads.
// Threads: all methods are thread-safe. Each recruit has a thread that reads its stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "train/peers.h"

namespace permafrost::api {

struct PeerOptions {
  std::vector<std::string> addresses;  // gRPC addresses, host:port
  std::string token;                   // bearer token sent to every peer; empty: none is sent
  // PEM texts. `authority` signed the peers' certificates; empty: connections to peers use plain text. `certificate`
  // and `key` are this server's client certificate, for peers that require one; empty: it has none.
  std::string authority, certificate, key;
  // The versions and device of this server. A peer with another version or device refuses the rank.
  std::string version, torch_version, device;
  // Identifies this process. A peer with the same identifier is this server itself.
  std::string instance;
  // How long a peer may take to answer whether its device has taken a rank.
  absl::Duration answer_timeout = absl::Seconds(10);
};

std::unique_ptr<train::Peers> MakeGrpcPeers(PeerOptions options);

}  // namespace permafrost::api
