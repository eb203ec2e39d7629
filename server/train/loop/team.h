// The ranks that train one job: alone, led by this daemon, or led by another.
// Threads: the device thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device.h"
#include "collective/tcp_group.h"
#include "spec/model.h"
#include "train/peers.h"
#include "train/runner.h"

namespace permafrost::train {

// Ok if a job with so many replicas can be led by a server with this device and so many peers; else InvalidArgument
// with a violation under `prefix`.
absl::Status CheckReplicas(int64_t replicas, DeviceKind device, int64_t peers, std::string_view prefix);

class Team {
 public:
  // Finds the ranks that the request wants, and connects them. A job of one replica is alone. `step_timeout`: how long
  // a step waits for another rank. Errors: Unavailable, transient, if too few daemons join or they cannot connect;
  // FailedPrecondition, if a peer says that the job cannot be trained; Cancelled, if a stop was asked for.
  static absl::StatusOr<std::unique_ptr<Team>> Form(const RunRequest& request, Peers* peers,
                                                    absl::Duration step_timeout, RunContext& context);

  int64_t rank() const { return group_ == nullptr ? 0 : group_->rank(); }
  // nullptr: there are no others.
  collective::Group* group() const { return group_.get(); }
  // Gives each rank the archive of the leader's program. Errors: those of ReadFile; throws as the group.
  absl::Status ShareProgram(spec::ModelOptions& model) const;
  // Returns `error`, with which the run ended; where another rank is the cause, a transient error that names it, or
  // Cancelled if a stop was asked for while that rank kept this one waiting.
  absl::Status Explain(absl::Status error, const RunContext& context) const;

 private:
  Team() = default;

  // Destroyed from the last to the first: the group before its recruits, these before the rendezvous.
  std::unique_ptr<collective::Rendezvous> rendezvous_;
  std::unique_ptr<Recruits> recruits_;
  std::unique_ptr<collective::Group> group_;
};

}  // namespace permafrost::train
