#include <memory>
#include <string>

#include "client/commands.h"
#include "client/explain_view.h"
#include "client/format.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"

namespace permafrost::client {
namespace {

ExitCode ExplainJob(Session& session, const std::string& job) {
  const auto stub = v1::GraphCacheService::NewStub(session.channel());
  v1::ExplainGraphCacheRequest request;
  request.set_name(CacheName(job));
  v1::ExplainGraphCacheResponse explanation;
  const grpc::Status status = session.Unary(
      [&](grpc::ClientContext* context) { return stub->ExplainGraphCache(context, request, &explanation); });
  if (!status.ok()) return session.Fail(status);
  if (session.json()) {
    session.PrintJson(explanation);
  } else {
    session.Print(RenderExplanation(explanation, session.terminal().style()));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddJobExplain(CLI::App& job, Command& chosen) {
  CLI::App* command = job.add_subcommand(
      "explain", "Why a job compiled and missed what it did, what its audits found, and a step's time by operator");
  const auto id = std::make_shared<std::string>();
  command->add_option("ID", *id, "The job")->type_name("")->required();
  command->callback([id, &chosen] { chosen = [id](Session& session) { return ExplainJob(session, *id); }; });
}

}  // namespace permafrost::client
