#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/job_create.h"
#include "client/server_view.h"
#include "permafrost/v1/server.grpc.pb.h"

namespace permafrost::client {
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

}  // namespace permafrost::client
