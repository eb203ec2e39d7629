// A group in which every rank has a TCP connection to every other rank. Messages are not encrypted, so the network
// between the ranks must be private. A rank that joins must know the token of the rendezvous.
// Every sum over ranks is added in the order of ranks.
// Threads: same as Group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collective/connection.h"
#include "collective/group.h"

namespace permafrost::collective {

// The socket on which the leader waits for the other ranks, and the token that they must know.
class Rendezvous {
 public:
  // Listens on a free port. Errors: Unavailable.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Serve();

  int port() const { return port_; }
  // Returns the token that the other ranks must send.
  const std::string& token() const { return token_; }
  const Socket& socket() const { return socket_; }

 private:
  Socket socket_;
  int port_ = 0;
  std::string token_;
};

struct TcpOptions {
  int64_t rank = 0;
  int64_t size = 2;  // number of ranks; only the leader sets it, and tells the others
  std::string token;
  // Ranks have `connect_timeout` to reach the leader. After that, they have 20 s to connect to each other. Within a
  // step, a rank waits up to `step_timeout` for another rank.
  absl::Duration connect_timeout = absl::Seconds(30), step_timeout = absl::Seconds(30);
  // In Meet, a rank waits up to this long for another rank.
  absl::Duration meet_timeout = absl::Minutes(10);
  // Called about five times a second once this rank has waited 1 s for another rank. If it returns false, the
  // exchange fails, and failure() returns Cancelled.
  std::function<bool()> keep_going = nullptr;
  // Called about five times a second while the ranks connect. If it returns false, LeadTcp or JoinTcp returns
  // Unavailable.
  std::function<bool()> keep_connecting = nullptr;
};

// Waits until all other ranks have connected to this rank, which is rank 0, and returns the group. Errors:
// Unavailable. If a rank did not connect, the metadata of the error's reason has the first such rank's number under
// "rank".
absl::StatusOr<std::unique_ptr<Group>> LeadTcp(const Rendezvous& rendezvous, TcpOptions options);
// Connects this rank, which is not 0, to the group whose leader serves a rendezvous at `host` and `port`. After
// JoinTcp returns, other ranks may still fail to connect to each other. The first exchange then fails. Errors:
// Unavailable, naming the rank that was not reached.
absl::StatusOr<std::unique_ptr<Group>> JoinTcp(const std::string& host, int port, TcpOptions options);

}  // namespace permafrost::collective
