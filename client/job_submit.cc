#include <memory>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/job_flags.h"
#include "client/job_view.h"
#include "client/job_watch.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

constexpr absl::Duration kFirstSubmitBackoff = absl::Milliseconds(100);

struct SubmitFlags {
  JobFlags job;
  std::optional<std::string> id;
  bool validate_only = false;
  bool watch = false;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

// A random (version 4) UUID.
std::string MakeUuid() {
  std::random_device random;
  const auto word = [&random] { return (static_cast<uint64_t>(random()) << 32) | random(); };
  const uint64_t high = (word() & ~0xf000ULL) | 0x4000ULL;
  const uint64_t low = (word() & ~(3ULL << 62)) | (2ULL << 62);
  return absl::StrFormat("%08x-%04x-%04x-%04x-%012x", high >> 32, (high >> 16) & 0xffff, high & 0xffff, low >> 48,
                         low & 0xffffffffffffULL);
}

// The request ID makes a second attempt safe even where the first one's answer was lost.
grpc::Status Create(Session& session, const v1::CreateJobRequest& request, v1::Job& job) {
  const auto stub = v1::JobService::NewStub(session.channel());
  const Stopwatch watch;
  const auto left = [&] { return session.options().timeout() - watch.Elapsed(); };
  absl::Duration backoff = kFirstSubmitBackoff;
  while (true) {
    const grpc::Status status =
        session.Unary(left(), [&](grpc::ClientContext* context) { return stub->CreateJob(context, request, &job); });
    if (status.error_code() != grpc::StatusCode::UNAVAILABLE) return status;
    // A server that was never there gets no second chance: its user waits for nothing but the news.
    if (!session.Connect() || backoff >= left()) return status;
    session.interrupt().WaitFor(backoff);
    backoff *= 2;
  }
}

ExitCode Submit(Session& session, const SubmitFlags& flags) {
  v1::CreateJobRequest request;
  ExitCode failed = ExitCode::kOk;
  if (!ReadJob(flags.job, session, request, failed)) return failed;
  if (flags.id) request.set_job_id(*flags.id);
  request.set_request_id(MakeUuid());
  request.set_validate_only(flags.validate_only);
  v1::Job job;
  const grpc::Status status = Create(session, request, job);
  if (!status.ok()) return session.Fail(status);
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
  submit->add_flag("--validate-only", flags->validate_only, "Check everything, create nothing");
  submit->add_flag("--watch", flags->watch, "Show progress until the job ends; Ctrl-C leaves it running");
  AddReconnectOption(*submit, flags->reconnect_seconds);
  submit->callback([flags, &chosen] { chosen = [flags](Session& session) { return Submit(session, *flags); }; });
}

}  // namespace permafrost::client
