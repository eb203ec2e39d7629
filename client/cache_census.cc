#include <algorithm>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/census_view.h"
#include "client/commands.h"
#include "client/job_flags.h"
#include "permafrost/v1/census.grpc.pb.h"

namespace permafrost::client {
namespace {

// A census walks a long schedule and runs a few steps.
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
