#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/table.h"
#include "client/wire_time.h"
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
  const absl::Time start = ToTime(info.start_time());
  session.Print(RenderFields(
      {{"address", info.listen_address()},
       {"metrics", info.metrics_address()},
       {"state", info.draining() ? Cell("draining", Tone::kWarn) : Cell("serving", Tone::kGood)},
       {"version", absl::StrCat(info.version(), info.git_commit().empty() ? "" : " (", info.git_commit(),
                                info.git_commit().empty() ? "" : ")")},
       {"libtorch", info.torch_version()},
       {"device", absl::StrCat(info.device(), ", ", info.threads(), info.threads() == 1 ? " thread" : " threads")},
       {"started", absl::StrCat(ClockText(start, absl::LocalTimeZone()), " (",
                                AgeText(start, absl::Now(), absl::LocalTimeZone()), ")")},
       {"process", absl::StrCat(info.process_id())},
       {"state dir", info.state_dir()},
       {"import roots", absl::StrJoin(info.import_roots(), ", ")},
       {"jobs", absl::StrCat(info.running_jobs(), " running, ", info.queued_jobs(), " queued")},
       {"datasets", absl::StrCat(info.datasets())}},
      session.terminal().style()));
  return ExitCode::kOk;
}

ExitCode Drain(Session& session) {
  const auto stub = v1::ServerService::NewStub(session.channel());
  v1::DrainResponse response;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->Drain(context, v1::DrainRequest(), &response); });
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
  server->add_subcommand("info", "Version, device, addresses, directories and work of the server")->callback([&chosen] {
    chosen = Info;
  });
  server
      ->add_subcommand("drain",
                       "Let the server stop: no new jobs, the running one writes a checkpoint, the process exits")
      ->callback([&chosen] { chosen = Drain; });
}

}  // namespace permafrost::client
