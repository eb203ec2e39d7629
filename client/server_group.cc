#include "client/server_group.h"

#include <algorithm>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "client/contexts.h"
#include "client/format.h"
#include "client/job_view.h"
#include "client/requests.h"
#include "permafrost/v1/dataset.grpc.pb.h"
#include "permafrost/v1/enum_text.h"
#include "permafrost/v1/job.grpc.pb.h"
#include "permafrost/v1/program.grpc.pb.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::client {
namespace {

// An address contains a colon, and the name of a context does not.
bool IsAddress(const std::string& name) { return absl::StrContains(name, ':'); }

// Returns whether both answers come from the same daemon.
bool IsSame(const v1::ServerInfo& a, const v1::ServerInfo& b) {
  return a.process_id() == b.process_id() && a.state_dir() == b.state_dir() &&
         a.start_time().seconds() == b.start_time().seconds() && a.start_time().nanos() == b.start_time().nanos();
}

std::string OneServer(const std::string& name, const std::string& other) {
  return name == other ? absl::StrCat("--on: ", OneLine(name), " is named twice; name each server once")
                       : absl::StrCat("--on: ", OneLine(name), " and ", OneLine(other),
                                      " are the same server; name each server once");
}

// Refuses an empty checksum, without which equality cannot be checked. A server that is older, or that cannot open
// the store, gives none.
grpc::Status RequireChecksum(const std::string& name, const std::string& checksum) {
  if (!checksum.empty()) return grpc::Status::OK;
  return {grpc::StatusCode::FAILED_PRECONDITION,
          absl::StrCat(name, ": the server gives no checksum for it; upgrade permafrostd there, or import it again")};
}

grpc::Status DatasetChecksum(Session& session, const std::string& name, std::string& checksum) {
  v1::GetDatasetRequest request;
  request.set_name(name);
  v1::Dataset dataset;
  const auto stub = v1::DatasetService::NewStub(session.channel());
  grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->GetDataset(context, request, &dataset); });
  if (!status.ok()) return status;
  if (dataset.state() != v1::Dataset::STATE_READY) {
    const std::string state = EnumShortName(*v1::Dataset::State_descriptor(), dataset.state());
    return {
        grpc::StatusCode::FAILED_PRECONDITION,
        absl::StrCat(name, ": is ", state, dataset.error().empty() ? "" : ": ", dataset.error(), "; accepted: ready")};
  }
  checksum = dataset.content_checksum();
  return RequireChecksum(name, checksum);
}

grpc::Status ProgramChecksum(Session& session, const std::string& name, std::string& checksum) {
  v1::GetProgramRequest request;
  request.set_name(name);
  v1::Program program;
  const auto stub = v1::ProgramService::NewStub(session.channel());
  grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->GetProgram(context, request, &program); });
  checksum = program.xxh3();
  return status.ok() ? RequireChecksum(name, checksum) : status;
}

// Returns `first` with its empty fields filled from `second`.
CredentialFiles Merged(CredentialFiles first, const CredentialFiles& second) {
  const auto fill = [](std::string& mine, const std::string& other) {
    if (mine.empty()) mine = other;
  };
  fill(first.token_file, second.token_file);
  fill(first.ca_cert, second.ca_cert);
  fill(first.client_cert, second.client_cert);
  fill(first.client_key, second.client_key);
  first.tls = first.tls || second.tls;
  return first;
}

}  // namespace

absl::StatusOr<ServerGroup> ServerGroup::Open(Session& first, const std::vector<std::string>& names) {
  ServerGroup group;
  if (names.empty()) {
    Member& only = group.members_.emplace_back();
    only.name = first.options().server;
    only.session = &first;
    return group;
  }
  if (first.options().server != first.options().implied_server)
    return absl::InvalidArgumentError("--on cannot be combined with --server or --context");
  group.spread_ = true;
  const bool reads_contexts = !std::ranges::all_of(names, IsAddress);
  absl::StatusOr<Contexts> contexts = ReadContexts(ContextsPath());
  if (reads_contexts) PF_RETURN_IF_ERROR(contexts.status());
  if (!contexts.ok()) contexts = Contexts();
  std::map<std::string, std::string> seen;  // by address: the name that was given for it
  for (const std::string& name : names) {
    std::string server = name;
    CredentialFiles files;
    if (!IsAddress(name)) {
      const auto context = contexts->servers.find(name);
      if (context == contexts->servers.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "--on: '", OneLine(name), "' is no context, no HOST:PORT and no unix:PATH; ", KnownContexts(*contexts)));
      }
      server = context->second;
      files = ResolveCredentials({.server = "", .context = name, .environment = ""}, *contexts);
    }
    const auto [other, is_new] = seen.emplace(server, name);
    if (!is_new) return absl::InvalidArgumentError(OneServer(name, other->second));
    absl::StatusOr<Credentials> credentials =
        ReadCredentials(Merged(first.options().credential_files, files), {}, server);
    if (!credentials.ok()) return Annotate(credentials.status(), absl::StrCat("--on: ", OneLine(name)));
    Member& member = group.members_.emplace_back();
    member.name = name;
    member.own = std::make_unique<Session>(first, name, server, *std::move(credentials));
    member.session = member.own.get();
  }
  return group;
}

ExitCode ServerGroup::Fail(const Refusal& refusal) {
  Session& at = session(refusal.member);
  return refusal.is_usage ? at.Fail(UsageFailure(refusal.status.error_message())) : at.Fail(refusal.status);
}

grpc::Status ServerGroup::ReadInfo(size_t member) {
  Session& at = session(member);
  const auto stub = v1::ServerService::NewStub(at.channel());
  return CallPatiently(at, [&](grpc::ClientContext* context) {
    return stub->GetServerInfo(context, v1::GetServerInfoRequest(), &members_[member].info);
  });
}

grpc::Status ServerGroup::ListJobs(size_t member, v1::ListJobsRequest request, std::vector<v1::Job>& jobs) {
  request.set_page_size(1000);
  const auto stub = v1::JobService::NewStub(session(member).channel());
  do {
    v1::ListJobsResponse page;
    grpc::Status status = CallPatiently(
        session(member), [&](grpc::ClientContext* context) { return stub->ListJobs(context, request, &page); });
    if (!status.ok()) return status;
    jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return grpc::Status::OK;
}

grpc::Status ServerGroup::ListUnfinished(size_t member, std::vector<v1::Job>& jobs) {
  v1::ListJobsRequest request;
  const auto& states = *v1::Job::State_descriptor();
  for (int i = 0; i < states.value_count(); ++i) {
    const auto state = static_cast<v1::Job::State>(states.value(i)->number());
    if (state != v1::Job::STATE_UNSPECIFIED && !IsTerminal(state)) request.add_states(state);
  }
  return ListJobs(member, std::move(request), jobs);
}

std::optional<ServerGroup::Refusal> ServerGroup::Prepare(const std::set<std::string>& datasets,
                                                         const std::set<std::string>& programs) {
  if (auto refusal = Meet()) return refusal;
  if (auto refusal = CheckDoubles()) return refusal;
  return CheckEqual(datasets, programs);
}

std::optional<ServerGroup::Refusal> ServerGroup::Meet() {
  for (size_t m = 0; m < members_.size(); ++m) {
    Member& member = members_[m];
    grpc::Status status = ReadInfo(m);
    if (status.ok() && member.info.draining())
      status = {grpc::StatusCode::FAILED_PRECONDITION, "the server is draining and takes no jobs"};
    std::vector<v1::Job> jobs;
    if (status.ok() && member.info.queued_jobs() + member.info.running_jobs() > 0) status = ListUnfinished(m, jobs);
    if (!status.ok()) return Refusal{m, status};
    for (const v1::Job& job : jobs) {
      if (job.state() != v1::Job::STATE_PAUSED) member.priorities.push_back(job.spec().priority());
    }
  }
  return std::nullopt;
}

std::optional<ServerGroup::Refusal> ServerGroup::CheckDoubles() const {
  for (size_t m = 0; m < members_.size(); ++m) {
    for (size_t other = 0; other < m; ++other) {
      if (!IsSame(members_[other].info, members_[m].info)) continue;
      const std::string why = OneServer(members_[m].name, members_[other].name);
      return Refusal{m, {grpc::StatusCode::INVALID_ARGUMENT, why}, /*is_usage=*/true};
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
                      ": results of equal jobs may differ");
}

std::optional<ServerGroup::Refusal> ServerGroup::CheckEqual(const std::set<std::string>& datasets,
                                                            const std::set<std::string>& programs) {
  for (const auto& [names, read] : {std::pair(&datasets, &DatasetChecksum), std::pair(&programs, &ProgramChecksum)}) {
    for (const std::string& name : *names) {
      std::string first;
      for (size_t m = 0; m < members_.size(); ++m) {
        std::string checksum;
        grpc::Status status = read(*members_[m].session, name, checksum);
        if (m == 0) first = checksum;
        if (status.ok() && checksum != first) {
          status = {grpc::StatusCode::FAILED_PRECONDITION,
                    absl::StrCat(name, ": differs from that on ", OneLine(members_.front().name), " (checksums ",
                                 OneLine(checksum), " and ", OneLine(first),
                                 "); accepted: equal content on all servers. If an older version "
                                 "imported it, import it again")};
        }
        if (!status.ok()) return Refusal{m, status};
      }
    }
  }
  return std::nullopt;
}

std::optional<ServerGroup::Refusal> ServerGroup::Place(v1::CreateJobRequest request, Placement& placement) {
  const int32_t priority = request.spec().priority();
  request.set_validate_only(true);
  request.clear_request_id();
  std::vector<Placement> candidates;
  for (size_t m = 0; m < members_.size(); ++m) {
    const std::vector<int32_t>& others = members_[m].priorities;
    const int64_t ahead = std::ranges::count_if(others, [&](int32_t other) { return other >= priority; });
    candidates.push_back({.member = m, .idle = others.empty(), .ahead = ahead, .passed_over = {}});
  }
  std::ranges::sort(candidates, {}, [](const Placement& p) { return std::tuple(!p.idle, p.ahead, p.member); });
  std::vector<Refusal>& passed_over = placement.passed_over;
  passed_over.clear();
  for (const Placement& candidate : candidates) {
    v1::Job checked;
    const grpc::Status status = CreateJob(session(candidate.member), request, checked);
    if (status.ok()) {
      members_[candidate.member].priorities.push_back(priority);
      placement.member = candidate.member;
      placement.idle = candidate.idle;
      placement.ahead = candidate.ahead;
      return std::nullopt;
    }
    passed_over.push_back({candidate.member, status});
    const bool refuses_job = status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ||
                             status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED;
    if (!refuses_job) return passed_over.back();
  }
  return passed_over.front();
}

std::optional<ServerGroup::Refusal> ServerGroup::FindJobs(const std::string& filter,
                                                          std::map<std::string, std::vector<size_t>>& found) {
  v1::ListJobsRequest request;
  request.set_filter(filter);
  for (size_t m = 0; m < members_.size(); ++m) {
    std::vector<v1::Job> jobs;
    if (const grpc::Status status = ListJobs(m, request, jobs); !status.ok()) return Refusal{m, status};
    for (const v1::Job& job : jobs) found[job.name()].push_back(m);
  }
  return std::nullopt;
}

std::string ServerGroup::TwinsText(const std::string& job, const std::vector<size_t>& members) const {
  if (members.size() < 2) return "";
  const std::string servers = absl::StrJoin(
      members, ", ", [&](std::string* out, size_t member) { absl::StrAppend(out, OneLine(name(member))); });
  return absl::StrCat(OneLine(job), " is on several servers (", servers, "); cancel all but one");
}

}  // namespace permafrost::client
