#include <memory>
#include <string>

#include "client/commands.h"
#include "client/follow.h"
#include "client/format.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

struct LogFlags {
  std::string id;
  bool follow = false;
  int64_t offset = 0;
  int64_t tail = 0;
  double reconnect_seconds = kDefaultReconnectSeconds;
};

ExitCode Logs(Session& session, const LogFlags& flags) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::StreamJobLogsRequest request;
  request.set_name(WithCollection("jobs", flags.id));
  request.set_follow(flags.follow);
  request.set_offset(flags.tail > 0 ? -flags.tail : flags.offset);
  const FollowResult result = Follow<v1::StreamJobLogsResponse>(
      session, absl::Seconds(flags.reconnect_seconds),
      [&](grpc::ClientContext* context) { return stub->StreamJobLogs(context, request); },
      [&](const v1::StreamJobLogsResponse& piece) {
        if (session.json()) {
          session.PrintJson(piece);
        } else {
          session.Print(piece.data());
        }
        session.terminal().Flush();
        // The place to go on from, should the server go away.
        request.set_offset(piece.next_offset());
        return false;
      },
      /*ok_is_end=*/true);
  if (result.end == FollowEnd::kInterrupted) return session.Interrupted("");
  return result.end == FollowEnd::kDone ? ExitCode::kOk : session.Fail(result.failure);
}

}  // namespace

void AddJobLogs(CLI::App& job, Command& chosen) {
  CLI::App* logs = job.add_subcommand("logs", "A job's log, as it is, on standard output");
  const auto flags = std::make_shared<LogFlags>();
  logs->add_option("ID", flags->id, "The job")->type_name("")->required();
  logs->add_flag("--follow", flags->follow, "Go on until the job ends");
  CLI::Option* offset =
      logs->add_option("--offset", flags->offset, "Byte to begin at (default 0)")->check(NotNegative())->type_name("N");
  logs->add_option("--tail", flags->tail, "Begin that many bytes before the present end")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 62).description(""))
      ->excludes(offset)
      ->type_name("BYTES");
  AddReconnectOption(*logs, flags->reconnect_seconds);
  logs->callback([flags, &chosen] { chosen = [flags](Session& session) { return Logs(session, *flags); }; });
}

}  // namespace permafrost::client
