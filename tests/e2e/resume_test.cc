// Tests jobs whose daemon is killed repeatedly.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "e2e/daemon.h"
#include "e2e/ogb_nodes.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;

v1::Job Submit(Daemon& daemon, const v1::JobSpec& spec) {
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.set_job_id("job");
  *request.mutable_spec() = spec;
  v1::Job job;
  const grpc::Status status = daemon.jobs().CreateJob(&context, request, &job);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return job;
}

void Kill(Daemon& daemon) {
  daemon.process().Signal(SIGKILL);
  ASSERT_EQ(daemon.process().Wait(absl::Seconds(30)), 128 + SIGKILL);
}

// All results of a job that do not depend on time.
struct Leavings {
  std::string last, best, predictions;
  std::vector<double> train_losses, valid_metrics;
  bool operator==(const Leavings&) const = default;
};

Leavings LeavingsOf(Daemon& daemon, const fs::path& scratch) {
  const auto exported = [&](const std::string& artifact) {
    const Output out =
        daemon.Client({"job", "export", "job", "--artifact", artifact, "--to", (scratch / artifact).string()});
    EXPECT_EQ(out.code, 0) << out.err;
    std::ifstream in(scratch / artifact, std::ios::binary);
    std::string data(std::istreambuf_iterator<char>(in), {});
    fs::remove(scratch / artifact);
    return data;
  };
  Leavings leavings{exported("last-weights"), exported("best-weights"), exported("test-predictions"), {}, {}};
  const v1::Job job = daemon.Get("job");
  for (const v1::EpochMetrics& epoch : job.epochs()) {
    leavings.train_losses.push_back(epoch.train_loss());
    leavings.valid_metrics.push_back(epoch.valid_metric());
  }
  return leavings;
}

struct NodeJob {
  const char* why;
  std::vector<int64_t> fan_outs;
  int64_t epochs, steps_per_epoch;
  std::vector<int64_t> kills;  // the steps to kill at
  v1::ModelSpec::Architecture architecture = v1::ModelSpec::ARCHITECTURE_GCN;
  bool edge_features = false;
};

class KilledNodeJob : public testing::TestWithParam<NodeJob> {};

TEST_P(KilledNodeJob, EndsBitEqualToAnUndisturbedOne) {
  const NodeJob& c = GetParam();
  const TempDir dir;
  WriteOgbNodes(dir.path() / "source", 3000);
  if (c.edge_features) WriteEdgeFeatures(dir.path() / "source");
  v1::JobSpec spec;
  spec.set_dataset("datasets/kinds");
  spec.mutable_model()->set_architecture(c.architecture);
  spec.mutable_model()->set_hidden_channels(16);
  spec.mutable_model()->set_dropout(0.3);
  spec.mutable_optimizer()->set_learning_rate(0.01);
  spec.set_epochs(c.epochs);
  spec.set_seed(5);
  spec.mutable_checkpoint()->set_every_steps(40);
  if (!c.fan_outs.empty()) {
    spec.set_batch_size(128);
    spec.mutable_neighbor_sampling()->mutable_fan_outs()->Assign(c.fan_outs.begin(), c.fan_outs.end());
  }
  Leavings want;
  {
    Daemon daemon(dir.path() / "undisturbed", dir.path() / "source");
    ASSERT_TRUE(daemon.ready());
    daemon.Import("kinds", dir.path() / "source");
    Submit(daemon, spec);
    const v1::Job job = daemon.AwaitEnd("job");
    ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
    ASSERT_EQ(job.progress().step(), c.epochs * c.steps_per_epoch);
    want = LeavingsOf(daemon, dir.path());
    ASSERT_EQ(want.train_losses.size(), static_cast<size_t>(c.epochs));
    ASSERT_EQ(daemon.Stop(), 0);
  }
  const fs::path state = dir.path() / "killed";
  for (size_t i = 0; i < c.kills.size(); ++i) {
    Daemon daemon(state, dir.path() / "source");
    ASSERT_TRUE(daemon.ready());
    if (i == 0) {
      daemon.Import("kinds", dir.path() / "source");
      Submit(daemon, spec);
    }
    v1::Job seen;
    ASSERT_TRUE(WaitUntil(absl::Seconds(120),
                          [&] {
                            seen = daemon.Get("job");
                            // After a late kill, the job is beyond this step even before it runs again, so the state
                            // is checked too.
                            return seen.state() == v1::Job::STATE_RUNNING && seen.progress().step() >= c.kills[i];
                          }))
        << c.kills[i] << ": the kill must come before the end: " << seen.ShortDebugString();
    Kill(daemon);
  }
  Daemon daemon(state, dir.path() / "source");
  ASSERT_TRUE(daemon.ready());
  const v1::Job job = daemon.AwaitEnd("job");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_EQ(job.resumes(), static_cast<int32_t>(c.kills.size()));
  const Leavings got = LeavingsOf(daemon, dir.path());
  EXPECT_TRUE(got.last == want.last);
  EXPECT_TRUE(got.best == want.best);
  EXPECT_EQ(got.predictions, want.predictions);
  EXPECT_EQ(got.train_losses, want.train_losses);
  EXPECT_EQ(got.valid_metrics, want.valid_metrics);
  EXPECT_EQ(daemon.Stop(), 0);
}

INSTANTIATE_TEST_SUITE_P(Gcn, KilledNodeJob,
                         testing::Values(NodeJob{"WholeGraph", {}, 1500, 1, {60, 300, 700}},
                                         NodeJob{"Sampled", {8, 4}, 60, 15, {50, 230, 500}}),
                         [](const auto& job) { return job.param.why; });
INSTANTIATE_TEST_SUITE_P(
    Gine, KilledNodeJob,
    testing::Values(NodeJob{"WholeGraph", {}, 400, 1, {30, 150}, v1::ModelSpec::ARCHITECTURE_GINE, true},
                    NodeJob{"Sampled", {8, 4}, 20, 15, {50, 160}, v1::ModelSpec::ARCHITECTURE_GINE, true}),
    [](const auto& job) { return job.param.why; });

// An epoch takes far longer than any life of the daemon, and the job has no checkpoint options.
TEST(EndToEnd, AJobThatIsKilledOverAndOverGetsFurtherAndIsNotFailed) {
  const TempDir dir;
  const fs::path state = dir.path() / "state";
  v1::JobSpec spec;
  spec.set_dataset("datasets/zinc");
  // Makes steps slow, so that all lives end within the first epoch.
  spec.set_batch_size(1);
  spec.mutable_model()->set_hidden_channels(512);
  spec.set_epochs(100);
  {
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    daemon.Import("zinc", ShippedSample());
    Submit(daemon, spec);
  }
  int64_t saved = 0;
  for (int life = 0; life < 9; ++life) {
    Daemon daemon(state, ShippedSample());
    ASSERT_TRUE(daemon.ready());
    v1::Job seen;
    // Every third life is long enough for a checkpoint. The others last a few steps.
    const bool long_life = life % 3 == 2;
    const auto far_enough = [&] {
      seen = daemon.Get("job");
      const v1::Progress& progress = seen.progress();
      return seen.state() == v1::Job::STATE_RUNNING && progress.step() > saved + life &&
             (!long_life || progress.checkpoint_step() > saved);
    };
    ASSERT_TRUE(WaitUntil(absl::Seconds(120), far_enough)) << life << ": " << seen.ShortDebugString();
    EXPECT_EQ(seen.progress().epoch(), 1) << "an epoch's end must not be what saves it";
    if (long_life) saved = seen.progress().checkpoint_step();
    Kill(daemon);
  }
  Daemon daemon(state, ShippedSample());
  ASSERT_TRUE(daemon.ready());
  const v1::Job job = daemon.Get("job");
  EXPECT_NE(job.state(), v1::Job::STATE_FAILED) << job.error();
  EXPECT_GE(job.progress().checkpoint_step(), saved);
  EXPECT_EQ(daemon.Client({"job", "cancel", "job"}).code, 0);
  EXPECT_EQ(daemon.AwaitEnd("job").state(), v1::Job::STATE_CANCELLED);
  EXPECT_EQ(daemon.Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
