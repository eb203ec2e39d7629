// Tests a job with one executable for all shapes, killed and given commands while it trains.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "e2e/daemon.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr int64_t kStepsPerEpoch = 157;

class DynamicCache : public testing::Test {
 protected:
  static void SubmitJob(Daemon& daemon, const std::string& id, int64_t epochs, const std::vector<std::string>& flags) {
    std::vector<std::string> arguments{
        "job",          "submit", "--id",   id,  "--dataset", "zinc", "--epochs", std::to_string(epochs),
        "--batch-size", "64",     "--seed", "5", "--hidden",  "16",   "--layers", "2",
        "--dropout",    "0.1"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Output out = daemon.Client(arguments);
    ASSERT_EQ(out.code, 0) << out.err;
  }
  std::string WeightsOf(const Daemon& daemon, const std::string& job) {
    return daemon.LastWeights(job, dir_.path() / (job + "-" + std::to_string(++exports_)));
  }

  TempDir dir_;
  int exports_ = 0;
};

TEST_F(DynamicCache, TwoExecutablesServeTheJobAndAKillCostsNoBit) {
  Daemon daemon(dir_.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  constexpr int64_t kEpochs = 8;
  SubmitJob(daemon, "job", kEpochs, {"--shapes", "dynamic", "--checkpoint-every", "50"});
  daemon.AwaitStep("job", 20);
  const v1::GraphCache first = daemon.Cache("job");
  EXPECT_TRUE(first.frozen());
  EXPECT_EQ(first.freeze_step(), 0) << "before the first step";
  // Copies the state that a kill -9 at this moment would leave, while the job itself continues undisturbed.
  daemon.AwaitStep("job", 300);
  daemon.process().Suspend();
  CopyState(dir_.path() / "state", dir_.path() / "killed");
  daemon.process().Signal(SIGCONT);
  ASSERT_EQ(daemon.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
  const v1::GraphCache last = daemon.Cache("job");
  EXPECT_EQ(last.total_bytes(), first.total_bytes());
  for (const v1::GraphCacheStatistics& s : last.statistics()) {
    EXPECT_TRUE(s.dynamic());
    EXPECT_EQ(s.entries(), 1);
    EXPECT_EQ(s.captures(), 1);
    EXPECT_EQ(s.padded_hits() + s.eager_steps() + s.transient_steps() + s.graph_breaks() + s.oversize_steps(), 0);
  }
  EXPECT_EQ(last.statistics(0).hits(), kEpochs * kStepsPerEpoch);
  EXPECT_EQ(last.statistics(0).misses(), 0);
  EXPECT_EQ(last.statistics(0).padding_nodes(), kEpochs * kStepsPerEpoch) << "one a batch";
  const Output shown = daemon.Client({"cache", "show", "job"});
  EXPECT_THAT(shown.out, HasSubstr("dynamic: one executable for training and one for evaluation serve every shape"));
  EXPECT_THAT(shown.out, HasSubstr("no step compiled anything since"));
  const Output entries = daemon.Client({"cache", "entries", "job"});
  EXPECT_THAT(entries.out, testing::ContainsRegex("train +every "));
  EXPECT_THAT(entries.out, testing::ContainsRegex("eval +every "));

  // Eager steps compute the same sums.
  SubmitJob(daemon, "eager", kEpochs, {"--cache-policy", "never"});
  ASSERT_EQ(daemon.AwaitEnd("eager").state(), v1::Job::STATE_SUCCEEDED);
  const std::string undisturbed = WeightsOf(daemon, "job");
  EXPECT_TRUE(WeightsOf(daemon, "eager") == undisturbed) << "bit for bit";
  EXPECT_EQ(daemon.Stop(), 0);

  {
    Daemon resumed(dir_.path() / "killed", ShippedSample());
    ASSERT_TRUE(resumed.ready());
    resumed.AwaitStep("job", 400);
    resumed.process().Signal(SIGKILL);
    ASSERT_EQ(resumed.process().Wait(absl::Seconds(30)), 128 + SIGKILL);
  }
  Daemon resumed(dir_.path() / "killed", ShippedSample());
  ASSERT_TRUE(resumed.ready());
  ASSERT_EQ(resumed.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_TRUE(WeightsOf(resumed, "job") == undisturbed) << "bit for bit";
  const v1::GraphCache other = resumed.Cache("job");
  EXPECT_EQ(other.statistics(0).hits(), last.statistics(0).hits());
  EXPECT_GT(other.statistics(0).recaptures(), 0);
  EXPECT_EQ(other.statistics(0).captures() - other.statistics(0).recaptures(), 1);
  EXPECT_EQ(resumed.Stop(), 0);
}

TEST_F(DynamicCache, CommandsWorkOnItAndTheServersDefaultIsAuto) {
  Daemon daemon(dir_.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  SubmitJob(daemon, "job", 100, {});
  daemon.AwaitStep("job", 20);
  EXPECT_EQ(daemon.Get("job").spec().graph_cache().shapes(), v1::GraphCachePolicy::SHAPES_AUTO);
  EXPECT_TRUE(daemon.Cache("job").statistics(0).dynamic());
  const auto command = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "cache");
    arguments.insert(arguments.begin() + 2, "job");
    const Output out = daemon.Client(arguments);
    EXPECT_EQ(out.code, 0) << out.err;
    return daemon.Cache("job");
  };
  EXPECT_FALSE(command({"thaw"}).frozen());
  const v1::GraphCache frozen = command({"freeze"});
  EXPECT_TRUE(frozen.frozen());
  EXPECT_EQ(frozen.statistics(0).captures(), 1) << "it was held all the time";
  const v1::GraphCache cleared = command({"clear"});
  EXPECT_TRUE(cleared.frozen());
  EXPECT_EQ(cleared.statistics(0).captures(), 2);
  EXPECT_EQ(cleared.statistics(0).entries(), 1);
  const v1::GraphCache exact = command({"policy", "--shapes", "exact", "--freeze-at", "5"});
  EXPECT_FALSE(exact.statistics(0).dynamic());
  daemon.AwaitStep("job", exact.command_step() + 20);
  EXPECT_EQ(daemon.Cache("job").statistics(0).entries(), 6) << "five shapes and the ceiling";
  const v1::GraphCache dynamic = command({"policy", "--shapes", "auto"});
  daemon.AwaitStep("job", dynamic.command_step() + 5);
  EXPECT_EQ(daemon.Cache("job").statistics(0).entries(), 1);
  EXPECT_TRUE(daemon.Cache("job").frozen());
  EXPECT_EQ(daemon.Client({"job", "cancel", "job"}).code, 0);
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
