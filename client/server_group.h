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
  // The session's own server alone.
  explicit ServerGroup(Session& own);
  // names: HOST:PORT, unix:PATH or the names of contexts. Credentials of an address are the flags' and the
  // environment's; those of a context are the flags', the context's and the environment's, in this order. Borrows
  // `first`. Errors: InvalidArgument for a name that is none of these, a server that stands twice, and bad credentials.
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
  // Asks each server what it is and how many of its jobs have not ended. Refusals: FailedPrecondition for a server that
  // drains, and what a call failed with. Nullopt: all take jobs.
  std::optional<Refusal> Meet();
  // After Meet: one line for the user if two names are of one server; empty: none are.
  std::string Doubles() const;
  // After Meet: one line for people where versions, torch's versions or devices differ; empty: none does.
  std::string Differences() const;
  // Checks that the datasets and programs of these resource names are equal on all servers. Refusals: NotFound where
  // one is missing; FailedPrecondition where one is not ready, has no checksum or differs from the first server's.
  std::optional<Refusal> CheckEqual(const std::set<std::string>& datasets, const std::set<std::string>& programs);
  // Finds the jobs for which a filter holds (ListJobsRequest.filter): the members that have each, by resource name.
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
