// A group over TCP, by c10d: its TCPStore, which the leader serves, and ProcessGroupGloo. What they send is neither
// encrypted nor authenticated: the network between the daemons must be private. Threads: as Group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "collective/group.h"

namespace permafrost::collective {

// Why this build has no Gloo; empty: it has.
std::string NoGlooReason();

// The place where the ranks of one group find each other, which the leader serves.
class Rendezvous {
 public:
  // Serves on a free port of every address of this machine. Errors: Unavailable.
  static absl::StatusOr<std::unique_ptr<Rendezvous>> Serve();
  virtual ~Rendezvous() = default;
  virtual int port() const = 0;
};

struct GlooOptions {
  int64_t rank = 0, size = 2;
  // Where the leader serves the Rendezvous.
  std::string store_host = "127.0.0.1";
  int store_port = 0;
  // The address of this machine that the other ranks reach: a name or an IP.
  std::string own_host = "127.0.0.1";
  // How long the ranks may take to find each other, and then how long one waits for another within a step.
  absl::Duration connect_timeout = absl::Seconds(30), step_timeout = absl::Seconds(30);
  // How long one waits for another in Meet.
  absl::Duration meet_timeout = absl::Minutes(10);
};

// Returns once all ranks are connected. Errors: Unavailable; FailedPrecondition as NoGlooReason says.
absl::StatusOr<std::unique_ptr<Group>> JoinGloo(const GlooOptions& options);

// Returns the address by which this machine reaches `host`, a name or an IP; nothing is sent. Errors: Unavailable.
absl::StatusOr<std::string> OwnAddressTowards(const std::string& host);

}  // namespace permafrost::collective
