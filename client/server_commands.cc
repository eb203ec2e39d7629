#include <memory>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "client/job_create.h"
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

// Each message as a JSON line; else one live line, and where there can be none a line each.
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
  // Not again by itself: the server that it stops does not come back, as far as anyone knows.
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

}  // namespace permafrost::client
