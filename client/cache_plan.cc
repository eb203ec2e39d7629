// `permafrost cache plan` and `cache census`: the graph cache that a job would need, before the job is created.

#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/commands.h"
#include "client/format.h"
#include "client/job_flags.h"
#include "client/message_fields.h"
#include "client/plan_view.h"
#include "permafrost/v1/census.grpc.pb.h"
#include "permafrost/v1/plan.grpc.pb.h"

namespace permafrost::client {
namespace {

// The shortest time limit of the call. Making a plan takes long, because the server walks a long schedule and
// measures large steps.
constexpr absl::Duration kLeastTimeout = absl::Minutes(2);

struct PlanFlags {
  JobFlags job;
  bool without_costs = false;
  std::string svg;
};

ExitCode Plan(Session& session, const PlanFlags& flags) {
  v1::CreateJobRequest job;
  ExitCode failed = ExitCode::kOk;
  if (!ReadJob(flags.job, session, job, failed)) return failed;
  v1::PlanGraphCacheRequest request;
  *request.mutable_spec() = job.spec();
  request.set_without_costs(flags.without_costs);
  const auto stub = v1::PlanService::NewStub(session.channel());
  v1::PlanGraphCacheResponse plan;
  const absl::Duration timeout = std::max(session.options().timeout(), kLeastTimeout);
  const grpc::Status status = session.Unary(
      timeout, [&](grpc::ClientContext* context) { return stub->PlanGraphCache(context, request, &plan); });
  if (!status.ok()) return session.Fail(status, timeout);
  const std::string subject = SubjectOf(job.spec());
  const std::string text = session.json() ? ToJson(plan) + "\n" : RenderPlan(plan, subject, session.terminal().style());
  if (flags.svg.empty()) {
    session.Print(text);
    return ExitCode::kOk;
  }
  const auto target = OutputTarget::Open(flags.svg);
  if (!target.ok()) return session.Fail(FileFailure(target.status()));
  if (const absl::Status written = WriteOutput(*target, DrawPlan(plan, subject)); !written.ok())
    return session.Fail(FileFailure(written));
  session.PrintBeside(*target, text);
  return ExitCode::kOk;
}

}  // namespace

void AddCachePlan(CLI::App& cache, Command& chosen) {
  CLI::App* plan = cache.add_subcommand(
      "plan", "What each cache policy would cost a job, before anyone trains: executables, rows added, bytes, time");
  const auto flags = std::make_shared<PlanFlags>();
  AddJobFlags(*plan, flags->job);
  plan->add_flag("--without-costs", flags->without_costs, "Leave the device alone: no bytes and no times");
  plan->add_option("--svg", flags->svg,
                   "Draw the plan into this file, too; -: standard output, and the table to stderr")
      ->type_name("FILE");
  plan->callback([flags, &chosen] { chosen = [flags](Session& session) { return Plan(session, *flags); }; });
}

namespace {

// The shortest time limit of the call. Taking a census takes long, because the server walks a long schedule and runs
// a few steps.
constexpr absl::Duration kLeastCensusTimeout = absl::Minutes(2);

struct CensusFlags {
  JobFlags job;
  std::string torch_release;
};

ExitCode TakeCensus(Session& session, const CensusFlags& flags) {
  v1::CreateJobRequest job;
  ExitCode failed = ExitCode::kOk;
  if (!ReadJob(flags.job, session, job, failed)) return failed;
  v1::CensusGraphCacheRequest request;
  *request.mutable_spec() = job.spec();
  request.set_torch_release(flags.torch_release);
  const auto stub = v1::CensusService::NewStub(session.channel());
  v1::CensusGraphCacheResponse census;
  const absl::Duration timeout = std::max(session.options().timeout(), kLeastCensusTimeout);
  const grpc::Status status = session.Unary(
      timeout, [&](grpc::ClientContext* context) { return stub->CensusGraphCache(context, request, &census); });
  if (!status.ok()) return session.Fail(status, timeout);
  if (session.json()) {
    session.PrintJson(census);
  } else {
    session.Print(RenderCensus(census, SubjectOf(job.spec()), session.terminal().style()));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddCacheCensus(CLI::App& cache, Command& chosen) {
  CLI::App* census = cache.add_subcommand(
      "census", "Which entries a job would add to the graph cache of MPS, by operator and by policy; needs no Mac");
  const auto flags = std::make_shared<CensusFlags>();
  AddJobFlags(*census, flags->job);
  census
      ->add_option("--torch", flags->torch_release, "libtorch that the job would run with, 2.13 or 2.15 (default 2.13)")
      ->type_name("RELEASE");
  census->callback([flags, &chosen] { chosen = [flags](Session& session) { return TakeCensus(session, *flags); }; });
}

}  // namespace permafrost::client
