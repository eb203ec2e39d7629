// Tests the life of a job apart from training: preempted, killed with its daemon, stopped by its limits. It uses the
// real client and the real daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int kLifeEpochs = 4;

std::vector<std::string> LifeJob(const std::string& id, int epochs, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {"job",      "submit", "--dataset",    "zinc",
                                        "--id",     id,       "--epochs",     absl::StrCat(epochs),
                                        "--hidden", "32",     "--batch-size", "32"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

// Returns texts such as "QUEUED SUBMITTED".
std::vector<std::string> ChangesOf(const v1::Job& job) {
  std::vector<std::string> changes;
  for (const v1::StateChange& change : job.state_changes()) {
    changes.push_back(absl::StrCat(v1::Job::State_Name(change.state()).substr(6), " ", change.reason()));
  }
  return changes;
}

TEST(EndToEndLife, AJobThatIsPreemptedAndKilledEndsBitEqual) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  std::string want;
  {
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    ASSERT_EQ(daemon.Client(LifeJob("alone", kLifeEpochs)).code, 0);
    ASSERT_EQ(daemon.Client({"job", "wait", "alone"}).code, 0);
    want = daemon.LastWeights("alone", dir.path() / "alone");
    EXPECT_THAT(ChangesOf(daemon.Get("alone")),
                ElementsAre("QUEUED SUBMITTED", "PREPARING TAKEN", "WARMING_UP CAPTURING", "RUNNING STEPPED",
                            "SUCCEEDED FINISHED"));

    ASSERT_EQ(daemon.Client(LifeJob("job", kLifeEpochs)).code, 0);
    daemon.AwaitStep("job", 30);
    ASSERT_EQ(daemon.Client(LifeJob("urgent", 1, {"--priority", "5"})).code, 0);
    ASSERT_EQ(daemon.Client({"job", "wait", "urgent"}).code, 0);
    const v1::Job preempted = daemon.Get("job");
    EXPECT_THAT(ChangesOf(preempted), Contains("QUEUED PREEMPTED"));
    EXPECT_LT(preempted.progress().step(), preempted.progress().steps_per_epoch() * kLifeEpochs);
    EXPECT_EQ(Metric(HttpGet(daemon.metrics(), "/metrics"), "permafrost_job_preemptions_total"), 1);
    daemon.AwaitStep("job", preempted.progress().checkpoint_step() + 20);
    daemon.process().Signal(SIGKILL);
    ASSERT_EQ(daemon.process().Wait(absl::Seconds(30)), 128 + SIGKILL);
  }
  Daemon daemon(state, ShippedSample());
  ASSERT_TRUE(daemon.ready());
  ASSERT_EQ(daemon.Client({"job", "wait", "job"}).code, 0);
  EXPECT_THAT(ChangesOf(daemon.Get("job")),
              ElementsAre("QUEUED SUBMITTED", "PREPARING TAKEN", "WARMING_UP CAPTURING", "RUNNING STEPPED",
                          "QUEUED PREEMPTED", "PREPARING TAKEN", "WARMING_UP CAPTURING", "RUNNING STEPPED",
                          "QUEUED SERVER_DIED", "RECOVERING TAKEN", "RUNNING STEPPED", "SUCCEEDED FINISHED"));
  EXPECT_TRUE(daemon.LastWeights("job", dir.path() / "job") == want) << "bit by bit";
  const Output shown = daemon.Client({"job", "show", "job"});
  EXPECT_THAT(shown.out, HasSubstr("by job urgent"));
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(EndToEndLife, AJobBeyondItsLimitSaysSoAndGoesOnWithALaterOne) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  ASSERT_EQ(daemon.Client(LifeJob("job", 100'000, {"--max-runtime", "500ms"})).code, 0);
  const Output waited = daemon.Client({"job", "wait", "job"});
  EXPECT_EQ(waited.code, 1);
  EXPECT_THAT(waited.err, HasSubstr("max_runtime of 500ms"));
  const v1::Job failed = daemon.Get("job");
  EXPECT_EQ(failed.state(), v1::Job::STATE_FAILED);
  EXPECT_EQ(failed.error_status().code(), 4) << "DEADLINE_EXCEEDED";
  EXPECT_EQ(failed.error_status().message(), failed.error());
  ASSERT_EQ(failed.error_status().details_size(), 1);
  EXPECT_EQ(failed.progress().checkpoint_step(), failed.progress().step());
  const Output refused = daemon.Client({"job", "retry", "job"});
  EXPECT_EQ(refused.code, 4) << refused.err;
  EXPECT_THAT(refused.err, HasSubstr("would fail again"));
  const Output updated = daemon.Client({"job", "update", "job", "--max-runtime", "none", "--deadline", "1h"});
  EXPECT_EQ(updated.code, 0) << updated.err;
  ASSERT_EQ(daemon.Client({"job", "retry", "job"}).code, 0);
  daemon.AwaitStep("job", failed.progress().step() + 10);
  EXPECT_EQ(daemon.Client({"job", "cancel", "job"}).code, 0);
  EXPECT_EQ(daemon.Client({"job", "wait", "job"}).code, 1);
  EXPECT_EQ(daemon.Client({"job", "delete", "job"}).code, 0);
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
