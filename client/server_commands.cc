#include <grpcpp/generic/generic_stub.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/monotonic.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/progress.h"
#include "client/requests.h"
#include "client/server_view.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::client {
namespace {

ExitCode Info(Session& session) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::ServerInfo info;
  const grpc::Status status = session.Unary(
      [&](grpc::ClientContext* context) { return stub->GetServerInfo(context, v1::GetServerInfoRequest(), &info); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(info);
    return ExitCode::kOk;
  }
  session.Print(RenderServer(info, ViewTime::Now(), session.terminal().style()));
  return ExitCode::kOk;
}

// Prints each message as a line of JSON in JSON mode. Otherwise updates one live line or, without a terminal, prints
// a line for each message.
ExitCode Watch(Session& session, double reconnect_seconds) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  const FollowResult result = Follow<v1::ServerInfo>(
      session, absl::Seconds(reconnect_seconds),
      [&](grpc::ClientContext* context) { return stub->WatchServer(context, v1::WatchServerRequest()); },
      [&](const v1::ServerInfo& info) {
        Terminal& terminal = session.terminal();
        if (session.json()) {
          session.PrintJson(info);
        } else if (terminal.live()) {
          terminal.Live(RenderServerLine(info, terminal.style()));
        } else {
          terminal.Line(RenderServerLine(info, terminal.style()));
        }
        return false;
      },
      /*ok_is_end=*/false);
  session.terminal().ClearLive();
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  return session.Interrupted("the server goes on");
}

ExitCode Drain(Session& session) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::DrainRequest request;
  request.set_request_id(MakeUuid());
  v1::DrainResponse response;
  // Makes the call only once, because a server that stops at this call may never come back.
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->Drain(context, request, &response); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(response);
  } else if (response.running_job().empty()) {
    session.Print("the server drains and exits; no job runs\n");
  } else {
    session.Print(absl::StrCat("the server drains and exits; job ",
                               OneLine(StripCollection("jobs", response.running_job())),
                               " writes a checkpoint and resumes at the next start\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddServerCommands(CLI::App& app, Command& chosen) {
  CLI::App* server = app.add_subcommand("server", "The server itself")->require_subcommand(1);
  server->add_subcommand("info", "Version, device and its memory, addresses, directories and work of the server")
      ->callback([&chosen] { chosen = Info; });
  CLI::App* watch = server->add_subcommand("watch", "Follow the server's work and its device's memory until Ctrl-C");
  const auto reconnect_seconds = std::make_shared<double>(kDefaultReconnectSeconds);
  AddReconnectOption(*watch, *reconnect_seconds);
  watch->callback([reconnect_seconds, &chosen] {
    chosen = [reconnect_seconds](Session& session) { return Watch(session, *reconnect_seconds); };
  });
  server
      ->add_subcommand("drain",
                       "Let the server stop: no new jobs, the running one writes a checkpoint, the process exits")
      ->callback([&chosen] { chosen = Drain; });
  AddServerHealthCommand(*server, chosen);
  AddServerBackupCommand(*server, chosen);
  AddServerClockCommand(*server, chosen);
  AddTokenCommands(*server, chosen);
}

namespace {

ExitCode ConfirmClock(Session& session) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::ConfirmClockRequest request;
  request.set_request_id(MakeUuid());
  v1::ConfirmClockResponse response;
  const grpc::Status status = CallPatiently(
      session, [&](grpc::ClientContext* context) { return stub->ConfirmClock(context, request, &response); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(response);
  } else if (!response.has_jump()) {
    session.Print("the server's clock has not jumped: there was nothing to confirm\n");
  } else {
    session.Print(absl::StrCat("the server's clock, ", ClockJumpText(response.jump()),
                               ", is believed: what is too old by it is deleted from now on\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddServerClockCommand(CLI::App& server, Command& chosen) {
  server
      .add_subcommand(
          "confirm-clock",
          "Say that the server's clock is right after it jumped: jobs and uploads are deleted for their age "
          "again")
      ->callback([&chosen] { chosen = ConfirmClock; });
}

namespace {

// The method of the health service. Some gRPC packages lack its generated code, so its two messages are encoded by
// hand. Each has one field.
constexpr char kHealthMethod[] = "/grpc.health.v1.Health/Check";
constexpr char kServiceField = 0x0a;    // field 1, a string
constexpr uint8_t kStatusField = 0x08;  // field 1, a varint
constexpr uint8_t kIsServing = 1;

std::string HealthRequest(const std::string& service) {
  if (service.empty()) return {};
  // The name of a service is so short that one byte holds its length.
  return absl::StrCat(std::string(1, kServiceField), std::string(1, static_cast<char>(service.size())), service);
}

bool IsServing(const grpc::ByteBuffer& response) {
  grpc::Slice bytes;
  return response.DumpToSingleSlice(&bytes).ok() && bytes.size() == 2 && bytes.begin()[0] == kStatusField &&
         bytes.begin()[1] == kIsServing;
}

grpc::Status CheckHealth(grpc::GenericStub& stub, grpc::ClientContext& context, const std::string& service,
                         grpc::ByteBuffer& response) {
  grpc::CompletionQueue queue;
  const grpc::Slice bytes(HealthRequest(service));
  const auto call = stub.PrepareUnaryCall(&context, kHealthMethod, grpc::ByteBuffer(&bytes, 1), &queue);
  call->StartCall();
  grpc::Status status;
  call->Finish(&response, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return status;
}

ExitCode ShowHealth(Session& session, const std::string& service) {
  grpc::GenericStub stub(session.channel());
  grpc::ByteBuffer response;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return CheckHealth(stub, *context, service, response); });
  if (!status.ok()) return session.Fail(status);
  const bool serving = IsServing(response);
  const std::string text = serving ? "SERVING" : "NOT_SERVING";
  session.Print(session.json() ? absl::StrCat("{\"status\":\"", text, "\"}\n") : absl::StrCat(text, "\n"));
  return serving ? ExitCode::kOk : ExitCode::kEndedBadly;
}

}  // namespace

void AddServerHealthCommand(CLI::App& server, Command& chosen) {
  CLI::App* health = server.add_subcommand(
      "health", "Whether the server serves: not while it drains or its device thread hangs. For probes");
  const auto service = std::make_shared<std::string>();
  health
      ->add_option("--service", *service,
                   "A service's own health, as permafrost.v1.JobService. Default: that of the\nserver as a whole.")
      ->type_name("NAME")
      ->check([](const std::string& name) {
        return name.size() < 128 ? std::string() : std::string("accepted: at most 127 bytes");
      });
  health->callback(
      [service, &chosen] { chosen = [service](Session& session) { return ShowHealth(session, *service); }; });
}

namespace {

struct BackupFlags {
  std::string directory;
  bool with_datasets = false;
};

std::string NamesText(const char* collection, const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::string text;
  for (const std::string& name : names) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", OneLine(StripCollection(collection, name)));
  }
  return text;
}

std::string BackupText(const v1::BackupSummary& summary, absl::Duration took) {
  std::string text = absl::StrCat("backup ", OneLine(summary.path()), " is whole: ", CountText(summary.jobs()),
                                  " jobs, ", CountText(summary.files()), " files, ", BytesText(summary.bytes()), " in ",
                                  DurationText(took), "\n");
  if (!summary.datasets_wanted().empty()) {
    absl::StrAppend(
        &text, "not in it, and wanted by jobs that have not ended: ", NamesText("datasets", summary.datasets_wanted()),
        "; a server that goes on from it pauses these jobs until that is imported again\n");
  }
  if (!summary.jobs_anew().empty()) {
    absl::StrAppend(&text,
                    "in it without a checkpoint, as all are damaged or gone: ", NamesText("jobs", summary.jobs_anew()),
                    "; a server that goes on from it starts these jobs anew\n");
  }
  if (!summary.imports().empty()) {
    absl::StrAppend(&text, "imports that have not ended: ", NamesText("datasets", summary.imports()),
                    "; a server that goes on from it begins these anew, where it sees what they read\n");
  }
  return text;
}

ExitCode Backup(Session& session, const BackupFlags& flags) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::BackupRequest request;
  request.set_directory(flags.directory);
  request.set_with_datasets(flags.with_datasets);
  request.set_request_id(MakeUuid());
  v1::BackupResponse last;
  const Stopwatch watch;
  // If the server goes away and comes back, it reports the result of the backup, or makes the backup again.
  const FollowResult result = Follow<v1::BackupResponse>(
      session, session.options().timeout(),
      [&](grpc::ClientContext* context) { return stub->Backup(context, request); },
      [&](const v1::BackupResponse& response) {
        last = response;
        if (session.json()) {
          session.PrintJson(response);
        } else {
          const auto eta = EstimateRemaining(response.bytes_done(), response.bytes_total(), watch.Elapsed());
          session.terminal().Live(
              RenderBackupProgress(response.bytes_done(), response.bytes_total(), eta, session.terminal().style()));
        }
        return false;
      },
      /*ok_is_end=*/true);
  session.terminal().ClearLive();
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("");
  if (result.end == FollowEnd::kFailed) return session.Fail(result.failure);
  if (!session.json()) session.Print(BackupText(last.summary(), watch.Elapsed()));
  return ExitCode::kOk;
}

}  // namespace

void AddServerBackupCommand(CLI::App& server, Command& chosen) {
  CLI::App* backup = server.add_subcommand(
      "backup",
      "Copy the state of the running server on its machine: jobs, newest checkpoints, artifacts, logs, tokens");
  const auto flags = std::make_shared<BackupFlags>();
  backup
      ->add_option(
          "DIR", flags->directory,
          "A name below the server's --backup-root, or that path; must not be there, or be\nan empty directory")
      ->type_name("")
      ->required();
  backup->add_flag(
      "--with-datasets", flags->with_datasets,
      "Copy the datasets too. Without them, a server that goes on from the backup pauses the\njobs that have "
      "not ended until their datasets are imported again.");
  backup->callback([flags, &chosen] { chosen = [flags](Session& session) { return Backup(session, *flags); }; });
}

}  // namespace permafrost::client
