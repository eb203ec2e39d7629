// Tests a strict job whose replays are audited, and which is killed while it trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "e2e/daemon.h"
#include "permafrost/v1/graph_cache.grpc.pb.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The job has 8 epochs of 157 steps.
void SubmitAudited(Daemon& daemon, const std::string& id, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments{
      "job",      "submit", "--id",         id,   "--dataset", "zinc", "--epochs",  "8",   "--hidden",           "16",
      "--layers", "2",      "--batch-size", "64", "--seed",    "5",    "--dropout", "0.1", "--checkpoint-every", "50"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  const Output out = daemon.Client(arguments);
  ASSERT_EQ(out.code, 0) << out.err;
}

v1::ExplainGraphCacheResponse Explain(Daemon& daemon, const std::string& job) {
  const auto stub = v1::GraphCacheService::NewStub(daemon.channel());
  grpc::ClientContext context;
  v1::ExplainGraphCacheRequest request;
  request.set_name("jobs/" + job + "/graphCache");
  v1::ExplainGraphCacheResponse response;
  const grpc::Status status = stub->ExplainGraphCache(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return response;
}

TEST(Audits, AStrictJobIsAuditedToItsEndAndAKillCostsNoBit) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  SubmitAudited(daemon, "plain", {"--audit-every", "0"});
  SubmitAudited(daemon, "job", {"--audit-every", "50", "--strict"});
  ASSERT_TRUE(WaitUntil(absl::Seconds(120), [&] { return daemon.Get("job").progress().checkpoint_step() >= 250; }));
  daemon.process().Suspend();
  CopyState(dir.path() / "state", dir.path() / "killed");
  daemon.process().Signal(SIGCONT);
  ASSERT_EQ(daemon.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED) << daemon.Client({"job", "show", "job"}).out;
  const std::string plain = daemon.LastWeights("plain", dir.path() / "plain");
  EXPECT_TRUE(daemon.LastWeights("job", dir.path() / "job") == plain) << "bit for bit";

  // The job has run 1,256 steps.
  const v1::ExplainGraphCacheResponse all = Explain(daemon, "job");
  const v1::GraphCache& cache = all.cache();
  EXPECT_TRUE(cache.policy().strict());
  EXPECT_EQ(cache.statistics(0).audits(), 26);
  EXPECT_EQ(cache.statistics(0).audit_failures(), 0);
  EXPECT_EQ(cache.statistics(1).audits(), 8) << "the first step of each epoch's validation";
  EXPECT_EQ(cache.statistics(1).audit_failures(), 0);
  ASSERT_EQ(cache.captures_by_cause_size(), 2);
  EXPECT_EQ(cache.captures_by_cause(0).cause(), v1::GRAPH_CACHE_CAUSE_FREEZE);
  EXPECT_EQ(cache.captures_by_cause(1).cause(), v1::GRAPH_CACHE_CAUSE_FREEZE);
  ASSERT_EQ(all.profiles_size(), 2);
  EXPECT_EQ(all.profiles(0).step(), 1'250);
  EXPECT_GT(all.profiles(0).operators_size(), 3);
  EXPECT_GT(all.profiles(0).product_seconds(), 0) << "inside of the layers";
  const Output shown = daemon.Client({"job", "explain", "job"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("  audits        34, all equal to the bit, every 50 steps\n"));
  EXPECT_THAT(shown.out, HasSubstr("matrix products alone"));
  EXPECT_THAT(daemon.Client({"cache", "show", "job"}).out, HasSubstr("\n  strict  "));
  const std::string page = HttpGet(daemon.metrics(), "/metrics");
  EXPECT_EQ(Metric(page, R"(permafrost_graph_cache_audits_total{mode="train",result="equal"})"), 26);
  EXPECT_EQ(Metric(page, R"(permafrost_graph_cache_audits_total{mode="train",result="different"})"), 0);
  EXPECT_EQ(Metric(page, R"(permafrost_graph_cache_captures_by_cause_total{cause="freeze",mode="train"})"), 2)
      << "of both jobs";
  EXPECT_EQ(daemon.Stop(), 0);

  Daemon resumed(dir.path() / "killed", ShippedSample());
  ASSERT_TRUE(resumed.ready());
  ASSERT_EQ(resumed.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_TRUE(resumed.LastWeights("job", dir.path() / "resumed") == plain) << "bit for bit";
  const v1::GraphCache again = Explain(resumed, "job").cache();
  EXPECT_EQ(again.statistics(0).audits(), 26) << "the same steps";
  EXPECT_EQ(again.statistics(0).audit_failures(), 0);
  EXPECT_GT(again.statistics(0).recaptures(), 0) << "which strict bears";
  EXPECT_EQ(resumed.Stop(), 0);
}

// The job's batches are larger than all cached shapes, and it may not pad.
TEST(Audits, AStrictJobFailsWhereItsFrozenCacheWouldRunAStepEager) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  SubmitAudited(daemon, "job", {"--strict", "--shapes", "exact", "--freeze-at", "5", "--on-miss", "eager"});
  const v1::Job job = daemon.AwaitEnd("job");
  EXPECT_EQ(job.state(), v1::Job::STATE_FAILED);
  EXPECT_THAT(job.error(), HasSubstr("the graph cache is strict, and a training step of ("));
  EXPECT_THAT(job.error(), HasSubstr("would run eager although it is frozen: new-"));
  const Output refused = daemon.Client({"job", "submit", "--dataset", "zinc", "--cache-policy", "never", "--strict"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("policy never keeps nothing"));
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
