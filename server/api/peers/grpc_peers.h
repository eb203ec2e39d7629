// The other daemons that this one leads in a job, called by gRPC.
// Threads: all methods are safe anywhere; each recruit has a thread that reads its stream.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "train/peers.h"

namespace permafrost::api {

struct PeerOptions {
  std::vector<std::string> addresses;  // host:port of gRPC
  std::string token;                   // a bearer token, sent to every peer; empty: none is sent
  // PEM. `authority` signed their certificates; empty: they speak plain text. `certificate` and `key` are this
  // server's, for peers that want one; empty: it shows none.
  std::string authority, certificate, key;
  // This server's; a peer that differs refuses the rank.
  std::string version, torch_version, device;
  // Names this process; a peer with the same name is this server.
  std::string instance;
  // How long one may take to say whether its device has taken a rank.
  absl::Duration answer_timeout = absl::Seconds(10);
};

std::unique_ptr<train::Peers> MakeGrpcPeers(PeerOptions options);

}  // namespace permafrost::api
