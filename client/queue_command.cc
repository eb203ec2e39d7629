#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "client/commands.h"
#include "client/failure.h"
#include "client/queue_view.h"
#include "client/server_group.h"

namespace permafrost::client {
namespace {

// A server that cannot be asked is told in a line, and the others are shown.
ExitCode ShowQueues(Session& session, const std::vector<std::string>& names) {
  absl::StatusOr<ServerGroup> servers = ServerGroup::Open(session, names);
  if (!servers.ok()) return session.Fail(FileFailure(servers.status()));
  ExitCode exit = ExitCode::kOk;
  std::vector<ServerQueue> queues;
  for (size_t m = 0; m < servers->size(); ++m) {
    ServerQueue queue{.name = servers->name(m), .info = {}, .jobs = {}};
    grpc::Status status = servers->ReadInfo(m);
    if (status.ok()) status = servers->ListUnfinished(m, queue.jobs);
    if (!status.ok()) {
      exit = servers->session(m).Fail(status);
      if (session.interrupt().requested()) return exit;
      continue;
    }
    queue.info = servers->info(m);
    SortQueue(queue.jobs);
    queues.push_back(std::move(queue));
  }
  if (queues.empty()) return exit;
  session.Print(session.json() ? QueuesToJson(queues)
                               : RenderQueues(queues, ViewTime::Now(), session.terminal().style()));
  return exit;
}

}  // namespace

void AddQueueCommand(CLI::App& app, Command& chosen) {
  CLI::App* queue = app.add_subcommand("queue", "All jobs that have not ended, of one server or several");
  const auto servers = std::make_shared<std::vector<std::string>>();
  AddOnOption(*queue, *servers, "Show these servers (addresses or contexts) instead of the one");
  queue->callback(
      [servers, &chosen] { chosen = [servers](Session& session) { return ShowQueues(session, *servers); }; });
}

}  // namespace permafrost::client
