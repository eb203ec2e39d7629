// Tests labels, pause, resume, retry, update, wait, checkpoints, compare and report, with the real client and the
// real daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "e2e/daemon.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> SubmitArguments(const std::string& id, int epochs) {
  return {"job",      "submit", "--dataset",    "zinc", "--id",    id,        "--epochs", std::to_string(epochs),
          "--hidden", "32",     "--batch-size", "32",   "--label", "team=gnn"};
}

std::vector<double> LossesOf(const v1::Job& job) {
  std::vector<double> losses;
  for (const v1::EpochMetrics& epoch : job.epochs()) {
    losses.push_back(epoch.train_loss());
    losses.push_back(epoch.valid_loss());
  }
  return losses;
}

bool AwaitState(Daemon& daemon, const std::string& job, v1::Job::State state) {
  return WaitUntil(absl::Seconds(120), [&] { return daemon.Get(job).state() == state; });
}

// The job is paused while it runs, its daemon is killed, and another daemon resumes it. It is then cancelled and
// retried, and ends with the bits of an undisturbed job.
TEST(EndToEndVerbs, AJobThatIsPausedKilledAndRetriedEndsBitEqual) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  constexpr int kEpochs = 4;
  std::string want;
  std::vector<double> want_losses;
  {
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    ASSERT_EQ(daemon.Client(SubmitArguments("alone", kEpochs)).code, 0);
    const Output waited = daemon.Client({"job", "wait", "alone", "--timeout", "120"});
    EXPECT_EQ(waited.code, 0) << waited.err;
    EXPECT_EQ(waited.out, "job alone succeeded\n");
    want = daemon.LastWeights("alone", dir.path() / "alone");
    want_losses = LossesOf(daemon.Get("alone"));

    ASSERT_EQ(daemon.Client(SubmitArguments("job", kEpochs)).code, 0);
    daemon.AwaitStep("job", 30);
    const Output pausing = daemon.Client({"job", "pause", "job"});
    EXPECT_EQ(pausing.code, 0) << pausing.err;
    ASSERT_TRUE(AwaitState(daemon, "job", v1::Job::STATE_PAUSED));
    EXPECT_EQ(Metric(HttpGet(daemon.metrics(), "/metrics"), "permafrost_jobs{state=\"paused\"}"), 1);
    const Output late = daemon.Client({"job", "wait", "job", "--timeout", "0.3"});
    EXPECT_EQ(late.code, 6) << "a paused job has not ended: " << late.err;
    daemon.process().Signal(SIGKILL);
    ASSERT_EQ(daemon.process().Wait(absl::Seconds(30)), 128 + SIGKILL);
  }
  Daemon daemon(state, ShippedSample());
  ASSERT_TRUE(daemon.ready());
  const v1::Job paused = daemon.Get("job");
  EXPECT_EQ(paused.state(), v1::Job::STATE_PAUSED) << "a dead daemon does not wake it";
  EXPECT_EQ(paused.progress().checkpoint_step(), paused.progress().step());
  ASSERT_EQ(daemon.Client({"job", "resume", "job"}).code, 0);
  daemon.AwaitStep("job", paused.progress().step() + 20);
  ASSERT_EQ(daemon.Client({"job", "cancel", "job"}).code, 0);
  EXPECT_EQ(daemon.Client({"job", "wait", "job"}).code, 1);
  const Output checkpoints = daemon.Client({"job", "checkpoints", "job", "--verify", "--output", "json"});
  ASSERT_EQ(checkpoints.code, 0) << checkpoints.err;
  const json newest = json::parse(checkpoints.out)["checkpoints"][0];
  EXPECT_EQ(newest["state"], "STATE_COMPLETE");
  EXPECT_EQ(newest["step"], std::to_string(daemon.Get("job").progress().step()));
  EXPECT_GT(std::stoll(newest["totalBytes"].get<std::string>()), 1000);
  const Output retried = daemon.Client({"job", "retry", "job"});
  EXPECT_EQ(retried.code, 0) << retried.err;
  ASSERT_EQ(daemon.Client({"job", "wait", "job"}).code, 0);
  const v1::Job job = daemon.Get("job");
  EXPECT_EQ(job.resumes(), 2);
  EXPECT_TRUE(daemon.LastWeights("job", dir.path() / "job") == want) << "bit by bit";
  EXPECT_EQ(LossesOf(job), want_losses);
  EXPECT_EQ(daemon.Client({"job", "retry", "job"}).code, 4) << "it has succeeded";

  const Output compared = daemon.Client({"job", "compare", "alone", "job", "--output", "json"});
  ASSERT_EQ(compared.code, 0) << compared.err;
  const json comparison = json::parse(compared.out);
  EXPECT_TRUE(comparison["differences"].empty()) << comparison["differences"];
  const json& test = comparison["numbers"]["test MAE, best epoch"];
  EXPECT_EQ(test[0], test[1]);
  EXPECT_EQ(daemon.Stop(), 0);
}

TEST(EndToEndVerbs, JobsAreFoundByLabelAndReportedWhileTheyRun) {
  const TempDir dir;
  Daemon daemon(dir.path() / "state", ShippedSample());
  ASSERT_TRUE(daemon.ready());
  daemon.Import("zinc", ShippedSample());
  ASSERT_EQ(daemon.Client(SubmitArguments("runs", 100'000)).code, 0);
  ASSERT_EQ(daemon.Client(SubmitArguments("waits", 3)).code, 0);
  const auto found = [&](const std::string& filter) {
    const Output list = daemon.Client({"job", "list", "--filter", filter, "--output", "json"});
    EXPECT_EQ(list.code, 0) << list.err;
    std::vector<std::string> names;
    const json page = json::parse(list.out);
    for (const json& job : page["jobs"]) names.push_back(job["name"]);
    return names;
  };
  const Output updated = daemon.Client({"job", "update", "waits", "--priority", "5", "--label", "stage=next"});
  EXPECT_EQ(updated.out, "job waits: priority 5, labels stage=next, team=gnn\n") << updated.err;
  EXPECT_EQ(found("labels.team = gnn AND labels:stage AND priority >= 5"), std::vector<std::string>{"jobs/waits"});
  EXPECT_EQ(found("labels.team = gnn").size(), 2u);
  EXPECT_TRUE(found("dataset = \"datasets/other\"").empty());
  const Output bad = daemon.Client({"job", "list", "--filter", "priority > high"});
  EXPECT_EQ(bad.code, 4);
  EXPECT_THAT(bad.err, HasSubstr("at character 12, \"high\": accepted here: a whole number"));
  const Output stale = daemon.Client({"job", "update", "waits", "--priority", "6", "--etag", "old"});
  EXPECT_EQ(stale.code, 4);
  EXPECT_THAT(stale.err, HasSubstr("ABORTED"));

  ASSERT_TRUE(WaitUntil(absl::Seconds(120), [&] { return daemon.Get("runs").epochs_size() >= 2; }));
  const fs::path page = dir.path() / "report.html";
  const Output report = daemon.Client({"job", "report", "runs", "-o", page.string()});
  ASSERT_EQ(report.code, 0) << report.err;
  std::ifstream in(page);
  const std::string html{std::istreambuf_iterator<char>(in), {}};
  for (const char* part : {"the job has not ended", "<title>Loss</title>", "<h2>Graph cache</h2>",
                           "<title>Training steps replayed, %</title>", "<title>Graph cache, MB</title>",
                           "<h2>Specification</h2>", "team=gnn", "</html>"}) {
    EXPECT_THAT(html, HasSubstr(part));
  }
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
