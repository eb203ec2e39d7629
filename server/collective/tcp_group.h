// A group whose ranks are connected by TCP, each with each. Their messages are not encrypted: the network between them
// must be private. Who joins must know the token of the rendezvous.
// Sums are added in the order of ranks. Threads: as Group.
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

// Where the leader waits for the other ranks.
class Rendezvous {
 public:
  // Listens on a free port. Errors: Unavailable.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Serve();

  int port() const { return port_; }
  // The other ranks must send it.
  const std::string& token() const { return token_; }
  const Socket& socket() const { return socket_; }

 private:
  Socket socket_;
  int port_ = 0;
  std::string token_;
};

struct TcpOptions {
  int64_t rank = 0;
  int64_t size = 2;  // for the leader, which tells the others
  std::string token;
  // connect_timeout: how long a rank may take to reach its leader; then ranks have 20 s to connect to each other.
  // step_timeout: how long a rank waits for another within a step.
  absl::Duration connect_timeout = absl::Seconds(30), step_timeout = absl::Seconds(30);
  // How long one waits for another in Meet.
  absl::Duration meet_timeout = absl::Minutes(10);
  // Called some five times a second while a rank waits for another; if it returns false, the exchange fails, and
  // failure() is Cancelled.
  std::function<bool()> keep_going = nullptr;
  // The same while the ranks find each other: false ends that with Unavailable.
  std::function<bool()> keep_connecting = nullptr;
};

// Waits until all ranks are connected to this one, and returns rank 0's group. Errors: Unavailable, with the first
// missing rank under "rank" of its reason.
absl::StatusOr<std::unique_ptr<Group>> LeadTcp(const Rendezvous& rendezvous, TcpOptions options);
// Connects another rank, whose leader serves a rendezvous at this host and port. Other ranks may still fail to connect
// to each other once this one has its group: the first exchange tells. Errors: Unavailable, which names the rank that
// was not reached.
absl::StatusOr<std::unique_ptr<Group>> JoinTcp(const std::string& host, int port, TcpOptions options);

}  // namespace permafrost::collective
