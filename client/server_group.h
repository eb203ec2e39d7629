// The servers over which a command spreads its jobs, or whose jobs it lists.
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
#include "client/failure.h"
#include "client/session.h"
#include "grpcpp/support/status.h"
#include "permafrost/v1/job.pb.h"
#include "permafrost/v1/server.pb.h"

namespace permafrost::client {

inline constexpr char kInitFromOnServers[] = "--init-from cannot be combined with --on: its weights are on one server";

class ServerGroup {
 public:
  // names: HOST:PORT, unix:PATH or contexts; empty: the group is the server of `first` alone. A context's own
  // credential files come before the environment's, unlike with --context; flags come first. Borrows `first`. Errors:
  // InvalidArgument for names beside --server or --context, an unknown name, a server that is named twice or bad
  // credentials; those of ReadContexts.
  static absl::StatusOr<ServerGroup> Open(Session& first, const std::vector<std::string>& names);

  size_t size() const { return members_.size(); }
  // Returns whether Open was given names, even a single one.
  bool is_spread() const { return spread_; }
  Session& session(size_t member) { return *members_[member].session; }
  // Returns the member's name as --on gives it; without --on its address.
  const std::string& name(size_t member) const { return members_[member].name; }

  // The member whose server refused, and what it said.
  struct Refusal {
    size_t member = 0;
    grpc::Status status;
    bool is_usage = false;  // the command line is at fault, not the server
  };
  // Prints why, and returns the program's exit code.
  ExitCode Fail(const Refusal& refusal);

  // Reads the server's version, device and counts of jobs, which info() then returns.
  grpc::Status ReadInfo(size_t member);
  const v1::ServerInfo& info(size_t member) const { return members_[member].info; }
  // Adds the server's jobs that have not ended to `jobs`, the newest first.
  grpc::Status ListUnfinished(size_t member, std::vector<v1::Job>& jobs);

  // Reads each server's info and load, and checks that jobs of these datasets and programs (resource names) may be on
  // any of them. Returns the first server that drains, cannot be asked or is named twice, or whose datasets or programs
  // are missing, not ready, without a checksum or not equal to the first server's.
  std::optional<Refusal> Prepare(const std::set<std::string>& datasets, const std::set<std::string>& programs);
  // After Prepare: returns a warning if versions, torch versions or devices differ; empty if they are equal.
  std::string Differences() const;

  struct Placement {
    size_t member = 0;
    bool idle = false;  // no job there wants the device
    int64_t ahead = 0;  // jobs there that have not ended, are not paused and have no lower priority
    std::vector<Refusal> passed_over;
  };
  // After Prepare: finds the server that begins the job first, and counts the job there. An idle one comes first, then
  // the one with the fewest jobs ahead, then the first named. Servers are asked in this order to validate the job. One
  // that refuses it is passed over: as data and programs are equal, its memory, device or limits must differ. If all
  // refuse, passed_over has each refusal, and the first is returned. A server that cannot be asked is returned at once.
  std::optional<Refusal> Place(v1::CreateJobRequest request, Placement& placement);

  // Adds to `found`, by job name, the members that have a job which matches `filter` (ListJobsRequest.filter). Returns
  // the first server that cannot be asked.
  std::optional<Refusal> FindJobs(const std::string& filter, std::map<std::string, std::vector<size_t>>& found);
  // Returns a warning if the job is on several members; empty if it is on one.
  std::string TwinsText(const std::string& job, const std::vector<size_t>& members) const;

 private:
  struct Member {
    std::string name;
    Session* session = nullptr;
    std::unique_ptr<Session> own;  // null: the session of the command
    v1::ServerInfo info;
    std::vector<int32_t> priorities;  // of the jobs that want the device
  };
  ServerGroup() = default;
  std::optional<Refusal> Meet();
  std::optional<Refusal> CheckDoubles() const;
  std::optional<Refusal> CheckEqual(const std::set<std::string>& datasets, const std::set<std::string>& programs);
  grpc::Status ListJobs(size_t member, v1::ListJobsRequest request, std::vector<v1::Job>& jobs);

  std::vector<Member> members_;
  bool spread_ = false;
};

}  // namespace permafrost::client
