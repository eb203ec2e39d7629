// `permafrost job compare`. Here and not in the server: all that it shows is in the jobs as GetJob gives them.
#include <memory>
#include <string>
#include <vector>

#include "client/commands.h"
#include "client/compare_view.h"
#include "client/format.h"
#include "permafrost/v1/job.grpc.pb.h"

namespace permafrost::client {
namespace {

ExitCode CompareJobs(Session& session, const std::vector<std::string>& ids) {
  const auto stub = v1::JobService::NewStub(session.channel());
  std::vector<v1::Job> jobs;
  for (const std::string& id : ids) {
    v1::GetJobRequest request;
    request.set_name(WithCollection("jobs", id));
    const grpc::Status status = session.Unary(
        [&](grpc::ClientContext* context) { return stub->GetJob(context, request, &jobs.emplace_back()); });
    if (!status.ok()) return session.Fail(status);
  }
  if (session.json()) {
    session.Print(ComparisonToJson(jobs));
  } else {
    session.Print(RenderComparison(jobs, session.terminal().style()));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddJobCompare(CLI::App& job, Command& chosen) {
  CLI::App* compare =
      job.add_subcommand("compare", "Jobs side by side: what differs in their descriptions, and what came of them");
  const auto ids = std::make_shared<std::vector<std::string>>();
  compare->add_option("ID", *ids, "The jobs, two or more")->type_name("")->required()->expected(2, 1000);
  compare->callback([ids, &chosen] { chosen = [ids](Session& session) { return CompareJobs(session, *ids); }; });
}

}  // namespace permafrost::client
