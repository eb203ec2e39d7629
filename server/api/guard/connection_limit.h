// Bounds how many connections one client calls on at once. gRPC tells a server neither of a connection that nobody
// calls on nor of the end of one: counted are those that a client has called on and whose socket this process still has
// open.
#pragma once

#include <grpcpp/server_context.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/monotonic.h"

namespace permafrost::api {

// The far end of a connection: an address of IPv6, those of IPv4 mapped into it, and a port.
using PeerAddress = std::array<uint8_t, 18>;

// Parses what gRPC calls a peer ("ipv4:10.0.0.7:41234", "ipv6:%5Bfd00::7%5D:41234"). nullopt: it has no address, as the
// peer of a unix socket, whose connections are not told apart.
std::optional<PeerAddress> ParsePeer(std::string_view peer);
// The peers of all sockets that this process has open; nullopt: the system does not say.
std::optional<std::set<PeerAddress>> OpenPeers();

// Threads: all methods are safe anywhere, and wait for no disk.
class ConnectionLimit {
 public:
  // Returns the client that a call counts against (caller.h); empty: none, and then there is no limit.
  using Namer = std::function<std::string(const grpc::CallbackServerContext& context)>;

  // `most`: of one client; 0: any number.
  ConnectionLimit(int64_t most, Namer client_of,
                  std::function<std::optional<std::set<PeerAddress>>()> open_peers = OpenPeers)
      : most_(most), client_of_(std::move(client_of)), open_peers_(std::move(open_peers)) {}

  // Whom the call is counted to. ResourceExhausted (reason TOO_MANY_CONNECTIONS, metadata `client` and `limit`) where
  // it comes on one connection more than its client may have. The connection itself stays open: a server cannot close
  // it, and does once nothing is called on it (CallLimitOptions::idle).
  absl::StatusOr<std::string> Admit(const grpc::CallbackServerContext& context);
  absl::Status Count(const std::string& client, std::string_view peer);

 private:
  void ForgetClosed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const int64_t most_;
  const Namer client_of_;
  const std::function<std::optional<std::set<PeerAddress>>()> open_peers_;
  absl::Mutex mu_;
  std::map<std::string, std::set<PeerAddress>> by_client_ ABSL_GUARDED_BY(mu_);  // no set is empty
  size_t counted_ ABSL_GUARDED_BY(mu_) = 0;                                      // in all of them
  size_t forget_at_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<Stopwatch> forgot_ ABSL_GUARDED_BY(mu_);  // since it ended
  absl::Duration forgetting_took_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::api
