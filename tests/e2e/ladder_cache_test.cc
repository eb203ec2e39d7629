// Tests jobs on a ladder and on composed batches, killed while they train.
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
using testing::ContainsRegex;
using testing::HasSubstr;

class LadderCache : public testing::Test {
 protected:
  static void SubmitTo(Daemon& daemon, const std::string& id, const std::vector<std::string>& flags) {
    std::vector<std::string> arguments{
        "job",    "submit", "--id",     id,   "--dataset", "zinc", "--batch-size",       "64",
        "--seed", "5",      "--hidden", "16", "--layers",  "2",    "--checkpoint-every", "50"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    const Output out = daemon.Client(arguments);
    ASSERT_EQ(out.code, 0) << out.err;
  }
  std::string WeightsOf(const Daemon& daemon, const std::string& job) {
    return daemon.LastWeights(job, dir_.path() / (job + "-" + std::to_string(++exports_)));
  }
  static double RowsAdded(const v1::GraphCacheStatistics& s) {
    return static_cast<double>(s.padding_nodes() + s.padding_edges()) / static_cast<double>(s.nodes() + s.edges());
  }

  TempDir dir_;
  int exports_ = 0;
};

TEST_F(LadderCache, AKillCostsNoBitOnALadderOfBalancedBatches) {
  Daemon daemon(dir_.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  const std::vector<std::string> flags{"--epochs", "6", "--shapes", "ladder", "--rungs", "4", "--batching", "balanced"};
  SubmitTo(daemon, "job", flags);
  daemon.AwaitStep("job", 20);
  const Output switched = daemon.Client({"cache", "policy", "job", "--rungs", "1"});
  EXPECT_EQ(switched.code, 0) << switched.err;
  EXPECT_THAT(switched.out, HasSubstr("shapes: ladder of 1 rung"));
  const v1::GraphCache one = daemon.Cache("job");
  EXPECT_TRUE(one.frozen()) << "the answer comes when what the command needs is captured";
  EXPECT_EQ(one.freeze_step(), one.command_step());
  EXPECT_EQ(one.statistics(0).entries(), 1);
  EXPECT_EQ(one.statistics(0).rungs(), 1);
  daemon.AwaitStep("job", one.command_step() + 150);
  // Copies the state that a kill -9 at this moment would leave, while the job itself continues undisturbed.
  daemon.process().Suspend();
  CopyState(dir_.path() / "state", dir_.path() / "killed");
  daemon.process().Signal(SIGCONT);
  ASSERT_EQ(daemon.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
  const v1::GraphCache last = daemon.Cache("job");
  for (const v1::GraphCacheStatistics& s : last.statistics()) {
    EXPECT_EQ(s.misses(), 0) << "every step is a replay";
    EXPECT_EQ(s.entries(), 1);
  }
  EXPECT_LE(RowsAdded(last.statistics(0)), 0.02) << "one static executable";
  EXPECT_THAT(daemon.Client({"cache", "entries", "job"}).out, HasSubstr("A REPLAY"));
  EXPECT_THAT(daemon.Client({"job", "show", "job"}).out, ContainsRegex("batching +balanced\n"));
  EXPECT_THAT(daemon.Client({"job", "logs", "job"}).out, HasSubstr("graph cache warmed up before step 1"));
  const std::string undisturbed = WeightsOf(daemon, "job");
  EXPECT_EQ(daemon.Stop(), 0);

  Daemon resumed(dir_.path() / "killed", ShippedSample());
  ASSERT_TRUE(resumed.ready());
  ASSERT_EQ(resumed.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_TRUE(WeightsOf(resumed, "job") == undisturbed) << "bit for bit";
  EXPECT_EQ(resumed.Cache("job").statistics(0).misses(), 0);
  EXPECT_EQ(resumed.Stop(), 0);
}

// Runs each kind of executables with each kind of composed batches, and switches to another kind during the job.
TEST_F(LadderCache, AKillCostsNoBitInAnyModeOnComposedBatches) {
  const struct {
    std::string id;
    std::vector<std::string> flags, switched;
  } kCases[] = {
      {"exact-balanced", {"--shapes", "exact", "--freeze-at", "5", "--batching", "balanced"}, {"--shapes", "dynamic"}},
      {"dynamic-budget",
       {"--shapes", "dynamic", "--batching", "budget", "--max-nodes", "1600", "--max-edges", "3400"},
       {"--shapes", "ladder", "--rungs", "3"}},
      {"ladder-budget",
       {"--shapes", "ladder", "--rungs", "4", "--batching", "budget", "--max-nodes", "1600"},
       {"--policy", "never"}},
      {"exact-budget",
       {"--shapes", "exact", "--freeze-at", "5", "--on-miss", "eager", "--batching", "budget", "--max-edges", "3400"},
       {"--shapes", "ladder"}},
      {"always-balanced",
       {"--cache-policy", "always", "--shapes", "exact", "--batching", "balanced"},
       {"--max-executables", "6"}},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.id);
    const fs::path state = dir_.path() / c.id, killed = dir_.path() / (c.id + "-killed");
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    std::vector<std::string> flags{"--epochs", "20"};
    flags.insert(flags.end(), c.flags.begin(), c.flags.end());
    SubmitTo(daemon, "job", flags);
    daemon.AwaitStep("job", 20);
    std::vector<std::string> command{"cache", "policy", "job"};
    command.insert(command.end(), c.switched.begin(), c.switched.end());
    const Output switched = daemon.Client(command);
    ASSERT_EQ(switched.code, 0) << switched.err;
    const int64_t step = daemon.Cache("job").command_step();
    ASSERT_TRUE(WaitUntil(absl::Seconds(60), [&] { return daemon.Get("job").progress().checkpoint_step() > step; }));
    daemon.process().Suspend();
    CopyState(state, killed);
    daemon.process().Signal(SIGCONT);
    ASSERT_EQ(daemon.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
    const std::string undisturbed = WeightsOf(daemon, "job");
    EXPECT_EQ(daemon.Stop(), 0);

    Daemon resumed(killed, ShippedSample());
    ASSERT_TRUE(resumed.ready());
    ASSERT_EQ(resumed.AwaitEnd("job").state(), v1::Job::STATE_SUCCEEDED);
    EXPECT_THAT(resumed.Client({"job", "logs", "job"}).out, HasSubstr("resumed from the checkpoint of step "))
        << "it was killed before its end";
    EXPECT_TRUE(WeightsOf(resumed, "job") == undisturbed) << "bit for bit";
    EXPECT_EQ(resumed.Cache("job").command_step(), step);
    EXPECT_EQ(resumed.Stop(), 0);
  }
}

TEST_F(LadderCache, BadBatchingIsOneClearLine) {
  Daemon daemon(dir_.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  const auto refused = [&](std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"job", "submit", "--dataset", "zinc", "--validate-only"});
    const Output out = daemon.Client(flags);
    EXPECT_NE(out.code, 0);
    return out.err;
  };
  EXPECT_THAT(refused({"--batching", "budget"}), HasSubstr("budget without a bound"));
  EXPECT_THAT(refused({"--max-nodes", "700"}), HasSubstr("batching.max_nodes: is given for batching random"));
  EXPECT_THAT(refused({"--batching", "budget", "--max-nodes", "5"}), HasSubstr("of the train split's largest graph"));
  EXPECT_THAT(refused({"--rungs", "65"}), HasSubstr("graph_cache.rungs: 65 is outside 1..64"));
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
