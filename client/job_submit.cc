#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/id.h"
#include "base/status.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/job_flags.h"
#include "client/job_view.h"
#include "client/message_fields.h"
#include "client/requests.h"
#include "client/server_group.h"
#include "nlohmann/json.hpp"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

struct SubmitFlags {
  JobFlags job;
  std::vector<std::string> labels;
  std::optional<std::string> id;
  std::vector<std::string> servers;
  bool validate_only = false;
  bool watch = false;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

// One run of `job submit`.
class Submission {
 public:
  Submission(Session& session, ServerGroup servers, const SubmitFlags& flags, v1::CreateJobRequest request)
      : session_(session), servers_(std::move(servers)), flags_(flags), request_(std::move(request)) {}

  ExitCode Run() {
    if (servers_.is_spread()) {
      Interrupt::Scope keep_running(session_.interrupt(), nullptr);
      if (const std::optional<ExitCode> failed = Place()) return *failed;
    }
    const bool comes_back = servers_.is_spread() && !request_.job_id().empty();
    request_.set_request_id(comes_back ? RepeatableRequestId(request_.job_id(), request_.spec()) : MakeUuid());
    request_.set_validate_only(flags_.validate_only);
    Session& at = servers_.session(place_.member);
    v1::Job job;
    const grpc::Status status = CreateJob(at, request_, job);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !flags_.validate_only) {
      // The server's answer may have been lost or come too late, so the job may exist.
      Failure failure = RpcFailure(status, {at.options().server, /*connected=*/true, at.options().timeout()});
      absl::StrAppend(&failure.message, "; the job may be there all the same, see: ", at.CommandLine("job list"));
      return at.Fail(failure);
    }
    if (!status.ok()) return at.Fail(status);
    if (comes_back) WarnOfTwins();
    // In JSON mode, the notes are printed as a field of the job.
    if (!session_.json()) {
      for (const std::string& note : job.notes()) session_.terminal().Note(absl::StrCat("warning: ", OneLine(note)));
    }
    const std::string id = OneLine(StripCollection("jobs", job.name()));
    if (flags_.watch && !flags_.validate_only) {
      if (!session_.json()) session_.terminal().Line(absl::StrCat("job ", id, " submitted", Where()));
      if (session_.json() && servers_.is_spread()) PrintPlacedJson(job);
      return WatchJob(at, job.name(), absl::Seconds(flags_.reconnect_seconds));
    }
    if (session_.json() && servers_.is_spread()) {
      PrintPlacedJson(job);
    } else if (session_.json()) {
      session_.PrintJson(job);
    } else if (flags_.validate_only) {
      session_.Print(absl::StrCat("the job is valid", Where(), "; nothing was created\n"));
    } else {
      session_.Print(absl::StrCat("job ", id, " ", StateName(job.state()), Where(),
                                  "; watch it with: ", at.CommandLine(absl::StrCat("job watch ", id)), "\n"));
    }
    return ExitCode::kOk;
  }

 private:
  // Chooses the server on which an earlier command made the job with this ID. If there is none, chooses the server
  // that will begin the job first. Returns an exit code only on failure.
  std::optional<ExitCode> Place() {
    if (request_.spec().has_init_from()) return session_.Fail(UsageFailure(kInitFromOnServers));
    if (const auto refusal = FindMade()) {
      if (refusal->status.error_code() == grpc::StatusCode::UNAVAILABLE && !session_.json()) {
        session_.terminal().Note(absl::StrCat(
            "permafrost: ", OneLine(servers_.name(refusal->member)), " may hold job ", OneLine(request_.job_id()),
            ". Start it and repeat the command; without it in --on the job may be made twice"));
      }
      return servers_.Fail(*refusal);
    }
    if (!made_.empty()) {
      place_.member = made_.begin()->second.front();
      why_ = "it was there already";
      return std::nullopt;
    }
    std::set<std::string> programs;
    if (const std::string& program = request_.spec().model().program(); !program.empty()) programs.insert(program);
    if (const auto refusal = servers_.Prepare({request_.spec().dataset()}, programs)) return servers_.Fail(*refusal);
    const std::optional<ServerGroup::Refusal> refused = servers_.Place(request_, place_);
    for (const ServerGroup::Refusal& other : place_.passed_over) {
      const std::string& message = other.status.error_message();
      if (refused && message == refused->status.error_message()) continue;
      Warn(absl::StrCat(OneLine(servers_.name(other.member)), " is passed over: ", OneLine(message)));
    }
    if (refused) return servers_.Fail(*refused);
    why_ = place_.idle         ? "it is idle"
           : place_.ahead == 0 ? "no job there comes before it"
                               : absl::StrCat(place_.ahead, place_.ahead == 1 ? " job" : " jobs", " ahead of it");
    return std::nullopt;
  }

  // Fills made_ with the servers that have the job with this ID. Leaves made_ empty for an invalid ID, which no job
  // can have, and which would break the filter's syntax.
  std::optional<ServerGroup::Refusal> FindMade() {
    made_.clear();
    if (!CheckIdSyntax("job_id", request_.job_id()).ok()) return std::nullopt;
    return servers_.FindJobs(absl::StrCat("name = \"", request_.job_id(), "\""), made_);
  }

  // Warns if several servers have the job. A server may have accepted the job from an earlier command after this
  // command looked for it.
  void WarnOfTwins() {
    if (FindMade()) return;
    for (const auto& [name, members] : made_) {
      if (const std::string twins = servers_.TwinsText(name, members); !twins.empty()) Warn(twins);
    }
  }

  void Warn(const std::string& text) {
    warnings_.push_back(text);
    if (!session_.json()) session_.terminal().Note(absl::StrCat("warning: ", text));
  }

  // Returns, for example, " on lab-2 (it is idle)", or an empty text without --on.
  std::string Where() const {
    if (!servers_.is_spread()) return "";
    return absl::StrCat(" on ", OneLine(servers_.name(place_.member)), " (", why_, ")");
  }

  void PrintPlacedJson(const v1::Job& job) {
    auto out = nlohmann::ordered_json::parse(ToJson(job));
    out["server"] = servers_.name(place_.member);
    out["serverReason"] = why_;
    if (!warnings_.empty()) out["warnings"] = warnings_;
    session_.terminal().Line(out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }

  Session& session_;
  ServerGroup servers_;
  const SubmitFlags& flags_;
  v1::CreateJobRequest request_;
  ServerGroup::Placement place_;
  std::string why_;
  std::map<std::string, std::vector<size_t>> made_;  // by job name: the servers that have the job with this ID
  std::vector<std::string> warnings_;
};

ExitCode Submit(Session& session, const SubmitFlags& flags) {
  absl::StatusOr<ServerGroup> servers = ServerGroup::Open(session, flags.servers);
  if (!servers.ok()) return session.Fail(FileFailure(servers.status()));
  v1::CreateJobRequest request;
  ExitCode failed = ExitCode::kOk;
  if (!ReadJob(flags.job, session, request, failed)) return failed;
  if (const absl::Status read = ReadLabels(flags.labels, *request.mutable_labels()); !read.ok()) {
    return session.Fail(UsageFailure(std::string(read.message())));
  }
  if (flags.id) request.set_job_id(*flags.id);
  return Submission(session, *std::move(servers), flags, std::move(request)).Run();
}

}  // namespace

void AddJobSubmit(CLI::App& job, Command& chosen) {
  CLI::App* submit = job.add_subcommand("submit", "Queue a training job, described by a file, by flags, or by both");
  const auto flags = std::make_shared<SubmitFlags>();
  AddJobFlags(*submit, flags->job);
  submit
      ->add_option("--id", flags->id,
                   "ID of the job (default: the server makes one). With --on, the same command with the same ID comes "
                   "back to its job")
      ->type_name("ID");
  AddOnOption(
      *submit, flags->servers,
      "Choose one of these servers (addresses or contexts), which must have equal datasets and programs: one "
      "that does not refuse the job for its memory, device or limits, and begins it first. That is an idle one, "
      "else the one with the fewest jobs ahead of it, else the first named");
  AddLabelOption(*submit, flags->labels, "A label of the job, to find it by with job list --filter; several times");
  submit->add_flag("--validate-only", flags->validate_only, "Check everything, create nothing");
  submit->add_flag("--watch", flags->watch, "Show progress until the job ends; Ctrl-C leaves it running");
  AddReconnectOption(*submit, flags->reconnect_seconds);
  submit->callback([flags, &chosen] { chosen = [flags](Session& session) { return Submit(session, *flags); }; });
}

}  // namespace permafrost::client
