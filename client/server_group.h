// The servers that a command spreads its jobs over.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/session.h"
#include "grpcpp/support/status.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::client {

class ServerGroup {
 public:
  // A group of one, the server of `only`, which is borrowed. is_spread() is false.
  explicit ServerGroup(Session& only);
  // names: HOST:PORT, unix:PATH or contexts. A context's own credential files come before the environment's, unlike
  // with --context; flags come first. Borrows `first`. Errors: InvalidArgument for an unknown name, a server that is
  // named twice or bad credentials; those of ReadContexts.
  static absl::StatusOr<ServerGroup> Open(Session& first, const std::vector<std::string>& names);

  size_t size() const { return members_.size(); }
  // Returns whether Open made it, even for one server.
  bool is_spread() const { return spread_; }
  Session& session(size_t member) { return *members_[member].session; }
  // Returns the member's name as --on gives it.
  const std::string& name(size_t member) const { return members_[member].name; }

  // The member whose server refused, and what it said.
  struct Refusal {
    size_t member = 0;
    grpc::Status status;
  };
  // Reads each server's version, device and number of unfinished jobs. Returns the first server that drains
  // (FailedPrecondition) or cannot be asked; nullopt: all take jobs.
  std::optional<Refusal> Meet();
  // After Meet: returns an error message if two names mean one daemon; empty if none do.
  std::string Doubles() const;
  // After Meet: returns a warning if versions, torch versions or devices differ; empty if they are equal.
  std::string Differences() const;
  // Checks that the datasets and programs of these resource names are equal on all servers. Refusals: NotFound where
  // one is missing; FailedPrecondition where one is not ready, has no checksum or differs from the first server's.
  std::optional<Refusal> CheckEqual(const std::set<std::string>& datasets, const std::set<std::string>& programs);
  // Adds to `found`, by job name, the members that have a job which matches `filter` (ListJobsRequest.filter). Returns
  // the first server that cannot be asked.
  std::optional<Refusal> FindJobs(const std::string& filter, std::map<std::string, std::vector<size_t>>& found);
  // After Meet: returns the member with the fewest jobs that have not ended, and counts one more there. If several have
  // as few, it returns the first of them.
  size_t TakeLeastBusy();

 private:
  struct Member {
    std::string name;
    Session* session = nullptr;
    std::unique_ptr<Session> own;  // null: the session of the command
    v1::ServerInfo info;
    int64_t jobs = 0;
  };
  ServerGroup() = default;

  std::vector<Member> members_;
  bool spread_ = false;
};

}  // namespace permafrost::client
