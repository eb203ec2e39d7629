// The servers that a command spreads its jobs over.
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
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
  // names: HOST:PORT, unix:PATH or the names of contexts. Borrows `first`, whose credential flags are for all of them.
  // Errors: InvalidArgument for a name that is none of these, a server that stands twice, and bad credentials.
  static absl::StatusOr<ServerGroup> Open(Session& first, const std::vector<std::string>& names);

  size_t size() const { return members_.size(); }
  bool is_spread() const { return size() > 1; }
  Session& session(size_t member) { return *members_[member].session; }
  // As the user named it.
  const std::string& name(size_t member) const { return members_[member].name; }

  // The member whose server refused, and what it said.
  struct Refusal {
    size_t member = 0;
    grpc::Status status;
  };
  // Asks each server of several what it is and how many of its jobs have not ended. Nullopt: all answered.
  std::optional<Refusal> Meet();
  // Returns a line for people where versions, torch's versions or devices differ: equal jobs may then differ in bits.
  // Empty: none does. After Meet.
  std::string Differences() const;
  // Checks that datasets and programs of these resource names hold the same on each server of several. Refusals:
  // NotFound where one has none, FailedPrecondition for one that is not ready or differs from the first server's.
  std::optional<Refusal> CheckEqual(const std::set<std::string>& datasets, const std::set<std::string>& programs);
  // Returns the member with the fewest jobs that have not ended, of equals the first, and counts one more there.
  size_t TakeLeastBusy();
  // Returns the member that has the job jobs/ID; nullopt: none has.
  struct Found {
    std::optional<size_t> member;
    std::optional<Refusal> refusal;
  };
  Found FindJob(const std::string& job_id);

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
};

}  // namespace permafrost::client
