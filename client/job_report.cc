// `permafrost job report`.
#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/report_page.h"
#include "nlohmann/json.hpp"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "permafrost/v1/job.grpc.pb.h"
#include "permafrost/v1/plan.grpc.pb.h"

namespace permafrost::client {
namespace {

// The shortest time limit of the call. Making a plan takes long, because the server walks a long schedule.
constexpr absl::Duration kLeastPlanTimeout = absl::Minutes(2);

struct ReportFlags {
  std::string id;
  std::string output;
  bool without_plan = false;
};

// Adds optional parts of the report. The daemon may no longer have them, or may be too old to provide them.
void AddExtras(Session& session, const std::string& id, bool with_plan, ReportData& data) {
  const auto caches = v1::GraphCacheService::NewStub(session.channel());
  v1::GetGraphCacheRequest get;
  get.set_name(CacheName(id));
  v1::GraphCache cache;
  if (session.Unary([&](grpc::ClientContext* context) { return caches->GetGraphCache(context, get, &cache); }).ok()) {
    data.cache = cache;
  }
  v1::ListGraphCacheEntriesRequest list;
  list.set_parent(CacheName(id));
  list.set_page_size(1000);
  v1::ListGraphCacheEntriesResponse page;
  do {
    page.Clear();
    const auto call = [&](grpc::ClientContext* context) { return caches->ListGraphCacheEntries(context, list, &page); };
    if (!session.Unary(call).ok()) break;
    data.entries.insert(data.entries.end(), page.entries().begin(), page.entries().end());
    list.set_page_token(page.next_page_token());
  } while (!list.page_token().empty());

  const auto jobs = v1::JobService::NewStub(session.channel());
  v1::ListCheckpointsRequest checkpoints;
  checkpoints.set_parent(WithCollection("jobs", id));
  v1::ListCheckpointsResponse found;
  const auto list_them = [&](grpc::ClientContext* context) {
    return jobs->ListCheckpoints(context, checkpoints, &found);
  };
  if (session.Unary(list_them).ok()) data.checkpoints = {found.checkpoints().begin(), found.checkpoints().end()};

  if (!with_plan) return;
  const auto plans = v1::PlanService::NewStub(session.channel());
  v1::PlanGraphCacheRequest request;
  *request.mutable_spec() = data.job.spec();
  // Costs are not measured, since the device may be busy with this very job.
  request.set_without_costs(true);
  v1::PlanGraphCacheResponse plan;
  const auto make = [&](grpc::ClientContext* context) { return plans->PlanGraphCache(context, request, &plan); };
  if (session.Unary(std::max(session.options().timeout(), kLeastPlanTimeout), make).ok()) data.plan = plan;
}

ExitCode Report(Session& session, const ReportFlags& flags) {
  const auto stub = v1::JobService::NewStub(session.channel());
  v1::GetJobRequest request;
  request.set_name(WithCollection("jobs", flags.id));
  ReportData data;
  const grpc::Status status =
      session.Unary([&](grpc::ClientContext* context) { return stub->GetJob(context, request, &data.job); });
  if (!status.ok()) return session.Fail(status);
  AddExtras(session, flags.id, !flags.without_plan, data);
  if (session.interrupt().requested()) return session.Interrupted("");
  const std::string page = RenderReport(data, ViewTime::Now());
  const std::string path =
      flags.output.empty() ? absl::StrCat(std::string(StripCollection("jobs", flags.id)), ".html") : flags.output;
  const auto target = OutputTarget::Open(path);
  if (!target.ok()) return session.Fail(FileFailure(target.status()));
  if (const absl::Status written = WriteOutput(*target, page); !written.ok()) return session.Fail(FileFailure(written));
  if (session.json()) {
    const nlohmann::ordered_json file{{"file", target->name()}};
    session.PrintBeside(*target, file.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
  } else if (!target->is_stdout()) {
    session.Print(absl::StrCat("wrote ", OneLine(path), "\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddJobReport(CLI::App& job, Command& chosen) {
  CLI::App* report = job.add_subcommand(
      "report", "One HTML file that tells all of a job: curves, results, graph cache, plan, description");
  const auto flags = std::make_shared<ReportFlags>();
  report->add_option("ID", flags->id, "The job, also one that runs")->type_name("")->required();
  report->add_option("--to,-o,--out", flags->output, "The file, or -: standard output (default: ID.html)")
      ->type_name("FILE");
  report->add_flag("--without-plan", flags->without_plan, "Leave out what each cache policy would cost the job");
  report->callback([flags, &chosen] { chosen = [flags](Session& session) { return Report(session, *flags); }; });
}

}  // namespace permafrost::client
