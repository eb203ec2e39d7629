// A group in which every rank has a TCP connection to every other rank. Messages are not encrypted, so the network
// between the ranks must be private. A rank that joins must know the token of the rendezvous.
// Sums are added in the order of ranks. Threads: same as Group.
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

// The place where the leader waits for the other ranks.
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
  int64_t size = 2;  // number of ranks; set for the leader only, which tells the other ranks
  std::string token;
  // A rank may take `connect_timeout` to reach its leader. After that, ranks have 20 s to connect to each other.
  // Within a step, a rank waits `step_timeout` for another rank.
  absl::Duration connect_timeout = absl::Seconds(30), step_timeout = absl::Seconds(30);
  // In Meet, a rank waits this long for another rank.
  absl::Duration meet_timeout = absl::Minutes(10);
  // Called about five times a second once a rank has waited 1 s for another one. If it returns false, the exchange
  // fails, and failure() is Cancelled.
  std::function<bool()> keep_going = nullptr;
  // Called about five times a second while the ranks find each other. If it returns false, they give up with
  // Unavailable.
  std::function<bool()> keep_connecting = nullptr;
};

// Waits until all ranks are connected to this one, and returns the group as rank 0. Errors: Unavailable. If a rank is
// missing, the error's reason has the number of the first missing rank under "rank" in its metadata.
absl::StatusOr<std::unique_ptr<Group>> LeadTcp(const Rendezvous& rendezvous, TcpOptions options);
// Connects this rank, which is not 0, to the group whose leader serves a rendezvous at this host and port. After this
// returns, other ranks may still fail to connect to each other; the first exchange shows that. Errors: Unavailable
// naming the rank that was not reached.
absl::StatusOr<std::unique_ptr<Group>> JoinTcp(const std::string& host, int port, TcpOptions options);

}  // namespace permafrost::collective
