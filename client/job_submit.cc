#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/job_create.h"
#include "client/job_flags.h"
#include "client/job_view.h"

namespace permafrost::client {
namespace {

struct SubmitFlags {
  JobFlags job;
  std::vector<std::string> labels;
  std::optional<std::string> id;
  bool validate_only = false;
  bool watch = false;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

ExitCode Submit(Session& session, const SubmitFlags& flags) {
  v1::CreateJobRequest request;
  ExitCode failed = ExitCode::kOk;
  if (!ReadJob(flags.job, session, request, failed)) return failed;
  if (const absl::Status read = ReadLabels(flags.labels, *request.mutable_labels()); !read.ok()) {
    return session.Fail(UsageFailure(std::string(read.message())));
  }
  if (flags.id) request.set_job_id(*flags.id);
  request.set_request_id(MakeUuid());
  request.set_validate_only(flags.validate_only);
  v1::Job job;
  const grpc::Status status = CreateJob(session, request, job);
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && !flags.validate_only) {
    // Its answer may have been lost, or have come too late.
    Failure failure = RpcFailure(status, {session.options().server, /*connected=*/true, session.options().timeout()});
    absl::StrAppend(&failure.message, "; the job may be there all the same, see: ", session.CommandLine("job list"));
    return session.Fail(failure);
  }
  if (!status.ok()) return session.Fail(status);
  // JSON has them as a field.
  if (!session.json()) {
    for (const std::string& note : job.notes()) session.terminal().Note(absl::StrCat("warning: ", OneLine(note)));
  }
  if (flags.watch && !flags.validate_only) {
    if (!session.json())
      session.terminal().Line(absl::StrCat("job ", OneLine(StripCollection("jobs", job.name())), " submitted"));
    return WatchJob(session, job.name(), absl::Seconds(flags.reconnect_seconds));
  }
  if (session.json()) {
    session.PrintJson(job);
  } else if (flags.validate_only) {
    session.Print("the job is valid; nothing was created\n");
  } else {
    const std::string id = OneLine(StripCollection("jobs", job.name()));
    session.Print(absl::StrCat("job ", id, " ", StateName(job.state()),
                               "; watch it with: ", session.CommandLine(absl::StrCat("job watch ", id)), "\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddJobSubmit(CLI::App& job, Command& chosen) {
  CLI::App* submit = job.add_subcommand("submit", "Queue a training job, described by a file, by flags, or by both");
  const auto flags = std::make_shared<SubmitFlags>();
  AddJobFlags(*submit, flags->job);
  submit->add_option("--id", flags->id, "ID of the job (default: the server makes one)")->type_name("ID");
  AddLabelOption(*submit, flags->labels, "A label of the job, to find it by with job list --filter; several times");
  submit->add_flag("--validate-only", flags->validate_only, "Check everything, create nothing");
  submit->add_flag("--watch", flags->watch, "Show progress until the job ends; Ctrl-C leaves it running");
  AddReconnectOption(*submit, flags->reconnect_seconds);
  submit->callback([flags, &chosen] { chosen = [flags](Session& session) { return Submit(session, *flags); }; });
}

}  // namespace permafrost::client
