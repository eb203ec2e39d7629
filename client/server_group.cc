#include "client/server_group.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "client/contexts.h"
#include "client/format.h"
#include "client/job_create.h"
#include "permafrost/v1/dataset.grpc.pb.h"
#include "permafrost/v1/job.grpc.pb.h"
#include "permafrost/v1/program.grpc.pb.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::client {
namespace {

// A context's name has no colon, and an address has one.
bool IsAddress(const std::string& name) { return absl::StrContains(name, ':'); }

// Returns whether one daemon said both.
bool IsSame(const v1::ServerInfo& a, const v1::ServerInfo& b) {
  return a.process_id() == b.process_id() && a.state_dir() == b.state_dir() &&
         a.start_time().seconds() == b.start_time().seconds() && a.start_time().nanos() == b.start_time().nanos();
}

grpc::Status DatasetChecksum(Session& session, const std::string& name, std::string& checksum) {
  v1::GetDatasetRequest request;
  request.set_name(name);
  v1::Dataset dataset;
  const auto stub = v1::DatasetService::NewStub(session.channel());
  grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->GetDataset(context, request, &dataset); });
  if (!status.ok()) return status;
  checksum = dataset.content_checksum();
  if (!checksum.empty()) return status;
  return {grpc::StatusCode::FAILED_PRECONDITION,
          dataset.state() == v1::Dataset::STATE_READY
              ? absl::StrCat(name,
                             ": the server does not tell its checksum, so that it cannot be compared with the "
                             "other servers'; accepted: a newer permafrostd")
              : absl::StrCat(name, ": is not ready")};
}

grpc::Status ProgramChecksum(Session& session, const std::string& name, std::string& checksum) {
  v1::GetProgramRequest request;
  request.set_name(name);
  v1::Program program;
  const auto stub = v1::ProgramService::NewStub(session.channel());
  grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->GetProgram(context, request, &program); });
  checksum = program.xxh3();
  return status;
}

}  // namespace

ServerGroup::ServerGroup(Session& own) {
  members_.emplace_back();
  members_.back().name = own.options().server;
  members_.back().session = &own;
}

absl::StatusOr<ServerGroup> ServerGroup::Open(Session& first, const std::vector<std::string>& names) {
  ServerGroup group;
  const bool reads_contexts = !std::ranges::all_of(names, IsAddress);
  absl::StatusOr<Contexts> contexts = ReadContexts(ContextsPath());
  if (reads_contexts) PF_RETURN_IF_ERROR(contexts.status());
  if (!contexts.ok()) contexts = Contexts();
  std::map<std::string, std::string> seen;  // the name that stands for an address
  for (const std::string& name : names) {
    std::string server = name;
    CredentialFiles files;
    if (!IsAddress(name)) {
      const auto context = contexts->servers.find(name);
      if (context == contexts->servers.end()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--on: '", OneLine(name), "' is neither HOST:PORT nor a context; ", KnownContexts(*contexts)));
      }
      server = context->second;
      files = ResolveCredentials({.server = "", .context = name, .environment = ""}, *contexts);
    }
    const auto [other, is_new] = seen.emplace(server, name);
    if (!is_new) {
      return absl::InvalidArgumentError(absl::StrCat("--on: ", OneLine(name), " is the server of ",
                                                     OneLine(other->second), "; each is accepted once"));
    }
    PF_ASSIGN_OR_RETURN(Credentials credentials, ReadCredentials(first.options().credential_files, files, server));
    Member member{.name = name, .own = std::make_unique<Session>(first, name, server, std::move(credentials))};
    member.session = member.own.get();
    group.members_.push_back(std::move(member));
  }
  return group;
}

std::optional<ServerGroup::Refusal> ServerGroup::Meet() {
  if (!is_spread()) return std::nullopt;
  for (size_t m = 0; m < members_.size(); ++m) {
    Member& member = members_[m];
    const auto stub = v1::ServerService::NewStub(member.session->channel());
    grpc::Status status = CallPatiently(*member.session, [&](grpc::ClientContext* context) {
      return stub->GetServerInfo(context, v1::GetServerInfoRequest(), &member.info);
    });
    if (status.ok() && member.info.draining())
      status = {grpc::StatusCode::FAILED_PRECONDITION, "the server is draining and takes no jobs"};
    if (!status.ok()) return Refusal{m, status};
    member.jobs = int64_t{member.info.queued_jobs()} + member.info.running_jobs();
    for (size_t other = 0; other < m; ++other) {
      if (!IsSame(members_[other].info, member.info)) continue;
      return Refusal{m,
                     {grpc::StatusCode::INVALID_ARGUMENT,
                      absl::StrCat("is the server of ", OneLine(members_[other].name), "; each is accepted once")}};
    }
  }
  return std::nullopt;
}

std::string ServerGroup::Differences() const {
  std::vector<std::string> parts;
  const auto compare = [&](const char* what, const std::function<std::string(const v1::ServerInfo&)>& of) {
    std::vector<std::string> told;
    bool differs = false;
    for (const Member& member : members_) {
      differs = differs || of(member.info) != of(members_.front().info);
      told.push_back(OneLine(absl::StrCat(member.name, " ", of(member.info))));
    }
    if (differs) parts.push_back(absl::StrCat(what, " (", absl::StrJoin(told, ", "), ")"));
  };
  compare("versions", [](const v1::ServerInfo& info) { return info.version(); });
  compare("torch versions", [](const v1::ServerInfo& info) { return info.torch_version(); });
  compare("devices", [](const v1::ServerInfo& info) { return info.device(); });
  if (parts.empty()) return "";
  return absl::StrCat("the servers have different ", absl::StrJoin(parts, " and "),
                      ": results of equal jobs may differ by rounding");
}

std::optional<ServerGroup::Refusal> ServerGroup::CheckEqual(const std::set<std::string>& datasets,
                                                            const std::set<std::string>& programs) {
  if (!is_spread()) return std::nullopt;
  for (const auto& [names, read] : {std::pair(&datasets, &DatasetChecksum), std::pair(&programs, &ProgramChecksum)}) {
    for (const std::string& name : *names) {
      std::string first;
      for (size_t m = 0; m < members_.size(); ++m) {
        std::string checksum;
        grpc::Status status = read(*members_[m].session, name, checksum);
        if (m == 0) first = checksum;
        if (status.ok() && checksum != first) {
          status = {
              grpc::StatusCode::FAILED_PRECONDITION,
              absl::StrCat(name, ": holds something else than on ", OneLine(members_.front().name), " (checksums ",
                           OneLine(checksum), " and ", OneLine(first), "); accepted: equal ones")};
        }
        if (!status.ok()) return Refusal{m, status};
      }
    }
  }
  return std::nullopt;
}

size_t ServerGroup::TakeLeastBusy() {
  const auto least = std::ranges::min_element(members_, {}, &Member::jobs);
  ++least->jobs;
  return static_cast<size_t>(least - members_.begin());
}

ServerGroup::Found ServerGroup::FindJob(const std::string& job_id) {
  v1::GetJobRequest request;
  request.set_name(absl::StrCat("jobs/", job_id));
  for (size_t m = 0; m < members_.size(); ++m) {
    v1::Job job;
    const auto stub = v1::JobService::NewStub(members_[m].session->channel());
    const grpc::Status status = CallPatiently(
        *members_[m].session, [&](grpc::ClientContext* context) { return stub->GetJob(context, request, &job); });
    if (status.ok()) return {.member = m, .refusal = std::nullopt};
    if (status.error_code() != grpc::StatusCode::NOT_FOUND)
      return {.member = std::nullopt, .refusal = Refusal{m, status}};
  }
  return {};
}

}  // namespace permafrost::client
