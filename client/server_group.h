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
  // Opens one session per name. Each name is HOST:PORT, unix:PATH or a context. Without names, the group is the
  // server of `first` alone. Borrows `first`.
  // Credentials come from flags first, then from the context's own files, and then from the environment. With
  // --context, by contrast, the environment comes before the context.
  // Errors: InvalidArgument if names are combined with --server or --context, and for an unknown name, a server that
  // is named twice, or bad credentials. Also the errors of ReadContexts.
  static absl::StatusOr<ServerGroup> Open(Session& first, const std::vector<std::string>& names);

  size_t size() const { return members_.size(); }
  // Returns whether Open was given names, even a single one.
  bool is_spread() const { return spread_; }
  Session& session(size_t member) { return *members_[member].session; }
  // Returns the member's name in --on or, without --on, the member's address.
  const std::string& name(size_t member) const { return members_[member].name; }

  // A refusal: the member whose server refused a request, and the server's answer.
  struct Refusal {
    size_t member = 0;
    grpc::Status status;
    bool is_usage = false;  // the command line is at fault, not the server
  };
  // Prints the refusal, and returns the program's exit code.
  ExitCode Fail(const Refusal& refusal);

  // Reads the server's version, device and counts of jobs. info() then returns them.
  grpc::Status ReadInfo(size_t member);
  const v1::ServerInfo& info(size_t member) const { return members_[member].info; }
  // Adds the server's unfinished jobs to `jobs`, the newest first.
  grpc::Status ListUnfinished(size_t member, std::vector<v1::Job>& jobs);

  // Reads each server's info and load. Checks that jobs with these datasets and programs (resource names) can run on
  // any of the servers. Returns the first refusal. A server is refused if it drains, fails to answer or is named
  // twice. It is also refused if a dataset or program is missing there, not ready, without a checksum, or different
  // from the first server's.
  std::optional<Refusal> Prepare(const std::set<std::string>& datasets, const std::set<std::string>& programs);
  // Call it after Prepare. Returns a warning if versions, torch versions or devices differ, or an empty text.
  std::string Differences() const;

  struct Placement {
    size_t member = 0;
    bool idle = false;  // no job of the server runs or waits for the device
    int64_t ahead = 0;  // the server's unfinished, unpaused jobs of at least this job's priority
    std::vector<Refusal> passed_over;
  };
  // Call it after Prepare. Finds the server that will probably begin the job first, and counts the job there. Servers
  // are asked to validate the job in this order: idle servers first, then servers with fewer jobs ahead, then servers
  // named earlier. A server that refuses the job is passed over. Its memory, device or limits must differ, because
  // data and programs are equal. If all servers refuse, `passed_over` has all refusals, and the first one is
  // returned. At the first server that fails in any other way, Place returns that failure.
  std::optional<Refusal> Place(v1::CreateJobRequest request, Placement& placement);

  // Finds the jobs that match `filter` (ListJobsRequest.filter). For each of them, adds to `found` the job's name and
  // the members that have the job. At the first server that fails to answer, returns that failure.
  std::optional<Refusal> FindJobs(const std::string& filter, std::map<std::string, std::vector<size_t>>& found);
  // Returns a warning if the job is on several members, or an empty text.
  std::string TwinsText(const std::string& job, const std::vector<size_t>& members) const;

 private:
  struct Member {
    std::string name;
    Session* session = nullptr;
    std::unique_ptr<Session> own;  // null: `session` is the command's own session
    v1::ServerInfo info;
    std::vector<int32_t> priorities;  // one for each unfinished, unpaused job of the server
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
