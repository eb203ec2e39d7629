// Tests one large graph as a user works with it: import, inspection, training on its nodes, damage to its file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "e2e/daemon.h"
#include "e2e/ogb_nodes.h"
#include "temp_dir.h"

namespace permafrost::e2e {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The number of epochs. A kill in one of the first then comes long before the end, even on a slow machine.
constexpr int64_t kLongRun = 30;

class LargeGraph : public testing::Test {
 protected:
  void SetUp() override {
    WriteOgbNodes(dir_.path() / "source", 3000);
    daemon_ = std::make_unique<Daemon>(dir_.path() / "state", dir_.path() / "source");
    ASSERT_TRUE(daemon_->ready());
  }
  v1::Job Submit(const std::string& id, int64_t epochs, std::vector<int64_t> fan_outs = {8, 4}) {
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    request.set_job_id(id);
    v1::JobSpec& spec = *request.mutable_spec();
    spec.set_dataset("datasets/kinds");
    spec.mutable_model()->set_architecture(v1::ModelSpec::ARCHITECTURE_SAGE);
    spec.mutable_model()->set_hidden_channels(16);
    spec.mutable_optimizer()->set_learning_rate(0.01);
    spec.set_epochs(epochs);
    spec.set_batch_size(128);
    spec.set_seed(5);
    spec.mutable_neighbor_sampling()->mutable_fan_outs()->Assign(fan_outs.begin(), fan_outs.end());
    v1::Job job;
    const grpc::Status status = daemon_->jobs().CreateJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  // Returns a job's last weights, as the client exports them.
  std::string Weights(const std::string& job) { return daemon_->LastWeights(job, dir_.path() / job); }
  // Expects that a killed job on the imported graph `kinds` ends like an undisturbed one.
  void ExpectKilledEqualsUndisturbed() {
    Submit("undisturbed", kLongRun);
    ASSERT_EQ(daemon_->AwaitEnd("undisturbed").state(), v1::Job::STATE_SUCCEEDED);
    Submit("killed", kLongRun);
    ASSERT_NO_FATAL_FAILURE(daemon_->AwaitEpoch("killed", 3));
    ASSERT_NO_FATAL_FAILURE(KillAndRestart(daemon_, dir_.path() / "state", dir_.path() / "source"));
    const v1::Job killed = daemon_->AwaitEnd("killed");
    ASSERT_EQ(killed.state(), v1::Job::STATE_SUCCEEDED) << killed.error();
    EXPECT_EQ(killed.resumes(), 1);
    EXPECT_EQ(Weights("killed"), Weights("undisturbed"));
  }
  fs::path Store() const { return dir_.path() / "state/datasets/kinds/graph.pfg"; }

  TempDir dir_;
  std::unique_ptr<Daemon> daemon_;
};

TEST_F(LargeGraph, IsImportedVerifiedSampledAndTrainedOn) {
  const v1::Dataset dataset = daemon_->Import("kinds", dir_.path() / "source");
  ASSERT_TRUE(dataset.has_graph());
  EXPECT_EQ(dataset.graph().num_nodes(), 3000);
  EXPECT_TRUE(dataset.graph().symmetric());
  EXPECT_EQ(dataset.graph().node_features().width(), 12);

  const Output verified = daemon_->Client({"dataset", "verify", "kinds"});
  EXPECT_EQ(verified.code, 0) << verified.err;
  const Output sample =
      daemon_->Client({"dataset", "sample", "kinds", "--fan-out", "3,2", "--nodes", "1,2", "--output", "json"});
  ASSERT_EQ(sample.code, 0) << sample.err;
  const auto drawn = nlohmann::json::parse(sample.out);
  EXPECT_GE(drawn.at("edges").size(), 4U);
  EXPECT_EQ(daemon_->Client({"dataset", "sample", "kinds", "--fan-out", "3,2", "--nodes", "1,2", "--output", "json"})
                .out.substr(0, 200),
            sample.out.substr(0, 200))
      << "equal requests draw equally";
  EXPECT_EQ(daemon_->Client({"dataset", "sample", "kinds", "--walk", "5", "--count", "2"}).code, 0);

  const std::vector<std::string> plan = {"dataset",   "plan", "kinds",        "--memory", "60kB",
                                         "--fan-out", "8,4",  "--batch-size", "128"};
  const Output planned = daemon_->Client(plan);
  EXPECT_EQ(planned.code, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("an epoch of 15 batches over 1,800 of 3,000 nodes of kinds"));
  std::vector<std::string> as_json = plan;
  as_json.insert(as_json.end(), {"--output", "json"});
  const auto reading = nlohmann::json::parse(daemon_->Client(as_json).out).at("readings");
  ASSERT_EQ(reading.size(), 4U);
  EXPECT_GT(reading[0].at("hitRate"), 0);
  EXPECT_LT(reading[0].at("hitRate"), 1);
  EXPECT_GT(reading[1].at("hitRate"), reading[0].at("hitRate")) << "twice the memory";

  Submit("sampled", /*epochs=*/12);
  const v1::Job sampled = daemon_->AwaitEnd("sampled");
  ASSERT_EQ(sampled.state(), v1::Job::STATE_SUCCEEDED) << sampled.error();
  EXPECT_EQ(sampled.result().metric(), v1::METRIC_ACCURACY);
  EXPECT_GT(sampled.result().best_test_metric(), 0.6) << "a quarter by chance";
  EXPECT_GT(sampled.progress().look_ahead().sampled_edges(), 0);
  const std::string page = HttpGet(daemon_->metrics(), "/metrics");
  EXPECT_EQ(Metric(page, "permafrost_graph_cache_graph_breaks_total{mode=\"train\"}"), 0) << page;
  EXPECT_EQ(Metric(page, "permafrost_graph_cache_eager_steps_total{mode=\"train\"}"), 0);
  EXPECT_GT(Metric(page, "permafrost_job_lookahead_sampled_edges_total"), 0);

  Submit("whole", /*epochs=*/30, {});
  const v1::Job whole = daemon_->AwaitEnd("whole");
  ASSERT_EQ(whole.state(), v1::Job::STATE_SUCCEEDED) << whole.error();
  EXPECT_GT(whole.result().best_test_metric(), 0.6);
  const Output shown = daemon_->Client({"job", "show", "whole"});
  EXPECT_THAT(shown.out, HasSubstr("accuracy"));
  EXPECT_EQ(daemon_->Stop(), 0);
}

TEST_F(LargeGraph, NoSampleIsBeyondItsBudget) {
  daemon_->Import("kinds", dir_.path() / "source");
  const Output sample = daemon_->Client({"dataset", "sample", "kinds", "--fan-out", "all,all", "--count", "20",
                                         "--max-nodes", "60", "--max-edges", "90", "--output", "json"});
  ASSERT_EQ(sample.code, 0) << sample.err;
  const auto drawn = nlohmann::json::parse(sample.out);
  EXPECT_LE(drawn.at("edges").size(), 90U);
  EXPECT_GE(drawn.at("edges").size(), 20U);
  int64_t nodes = 0;
  for (const auto& of_hop : drawn.at("nodesOfHop")) nodes += std::stoll(of_hop.get<std::string>());
  EXPECT_LE(nodes, 60);

  const Output submitted = daemon_->Client(
      {"job",         "submit",    "--id",        "bounded",      "--dataset", "kinds",      "--architecture",
       "sage",        "--fan-out", "8,4",         "--batch-size", "128",       "--batching", "budget",
       "--max-nodes", "300",       "--max-edges", "400",          "--epochs",  "3"});
  ASSERT_EQ(submitted.code, 0) << submitted.err;
  const v1::Job job = daemon_->AwaitEnd("bounded");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  const v1::Progress& progress = job.progress();
  EXPECT_EQ(progress.step(), 3 * 15);
  EXPECT_LE(progress.nodes(), progress.step() * 300);
  EXPECT_LE(progress.edges(), progress.step() * 400);
  EXPECT_GT(progress.look_ahead().cut_batches(), 0);
  const Output shown = daemon_->Client({"job", "show", "bounded"});
  EXPECT_THAT(shown.out, HasSubstr("budget, at most 300 nodes a batch, at most 400 edges a batch"));
  EXPECT_THAT(shown.out, HasSubstr(" batches cut to the budget"));
  EXPECT_EQ(daemon_
                ->Client({"cache", "plan", "--dataset", "kinds", "--architecture", "sage", "--fan-out", "8,4",
                          "--batch-size", "128", "--batching", "budget", "--max-nodes", "300"})
                .code,
            0);
  EXPECT_EQ(daemon_->Stop(), 0);
}

TEST_F(LargeGraph, AJobKilledInTheMiddleEndsAsIfUndisturbed) {
  daemon_->Import("kinds", dir_.path() / "source");
  ExpectKilledEqualsUndisturbed();
  EXPECT_EQ(daemon_->Stop(), 0);
}

TEST_F(LargeGraph, LaidOutAnotherWayItSpeaksOfTheSourcesNodes) {
  const Output imported = daemon_->Client({"dataset", "import", "kinds", (dir_.path() / "source").string(),
                                           "--feature-type", "int8", "--order", "community"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  EXPECT_THAT(imported.out, HasSubstr("12 columns of int8, converted from float32 (error at most 0.00"));
  EXPECT_THAT(imported.out, HasSubstr("  order          community\n"));
  const Output sample =
      daemon_->Client({"dataset", "sample", "kinds", "--fan-out", "3", "--names", "17,4", "--output", "json"});
  ASSERT_EQ(sample.code, 0) << sample.err;
  const auto drawn = nlohmann::json::parse(sample.out);
  std::map<int64_t, std::string> names;
  for (const auto& name : drawn.at("names")) names[name.value("row", 0)] = name.at("name");
  EXPECT_EQ(names.at(drawn.at("nodes").at(0)), "17");
  EXPECT_EQ(names.at(drawn.at("nodes").at(1)), "4");

  ExpectKilledEqualsUndisturbed();
  EXPECT_GT(daemon_->Get("killed").result().best_test_metric(), 0.5);
  const Output exported = daemon_->Client({"job", "export", "killed", "--artifact", "test-predictions", "--to",
                                           (dir_.path() / "predictions.csv").string()});
  ASSERT_EQ(exported.code, 0) << exported.err;
  std::ifstream file(dir_.path() / "predictions.csv");
  std::set<int> nodes, want;
  std::string line;
  std::getline(file, line);
  while (std::getline(file, line)) nodes.insert(std::stoi(line));
  for (int node = 4; node < 3000; node += 5) want.insert(node);
  EXPECT_EQ(nodes, want) << "the source's test split";
  EXPECT_EQ(daemon_->Stop(), 0);
}

TEST_F(LargeGraph, ADaemonThatMayNotKeepTheFeaturesGoesOnToTheSameWeights) {
  daemon_->Import("kinds", dir_.path() / "source");
  Submit("mapped", kLongRun);
  ASSERT_EQ(daemon_->AwaitEnd("mapped").state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_FALSE(daemon_->Get("mapped").progress().look_ahead().has_features());
  Submit("read", kLongRun);
  ASSERT_NO_FATAL_FAILURE(daemon_->AwaitEpoch("read", 2));
  // After its bookkeeping for all 3,000 rows of 48 bytes, the cache has room for about a fifth of them.
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(daemon_, dir_.path() / "state", dir_.path() / "source",
                                         {"--feature-reader", "pread", "--feature-cache", "100kB"}));
  const v1::Job read = daemon_->AwaitEnd("read");
  ASSERT_EQ(read.state(), v1::Job::STATE_SUCCEEDED) << read.error();
  EXPECT_EQ(read.resumes(), 1);
  const v1::FeatureReading& features = read.progress().look_ahead().features();
  EXPECT_EQ(features.reader(), "pread");
  EXPECT_GT(features.hits(), 0);
  EXPECT_GT(features.misses(), 0);
  EXPECT_GT(features.read_bytes(), 0);
  const std::string page = HttpGet(daemon_->metrics(), "/metrics");
  EXPECT_EQ(Metric(page, "permafrost_feature_cache_misses_total"), features.misses());
  EXPECT_GT(Metric(page, "permafrost_feature_cache_read_seconds_count"), 0);
  const Output shown = daemon_->Client({"job", "show", "read"});
  EXPECT_THAT(shown.out, HasSubstr("of them found in memory"));
  EXPECT_THAT(shown.out, HasSubstr("feature cache"));
  EXPECT_THAT(daemon_->Client({"job", "logs", "read"}).out, HasSubstr("read by pread"));
  EXPECT_EQ(Weights("read"), Weights("mapped"));
  EXPECT_EQ(daemon_->Stop(), 0);
}

TEST_F(LargeGraph, DamageCostsTheJobThatMeetsItAndNothingElse) {
  daemon_->Import("kinds", dir_.path() / "source");
  Submit("cut", 1'000'000);
  ASSERT_TRUE(WaitUntil(absl::Seconds(60), [&] { return daemon_->Get("cut").progress().step() >= 20; }));
  fs::copy_file(Store(), dir_.path() / "whole.pfg");
  fs::resize_file(Store(), fs::file_size(Store()) / 2);
  const v1::Job cut = daemon_->AwaitEnd("cut");
  EXPECT_EQ(cut.state(), v1::Job::STATE_FAILED);
  EXPECT_THAT(cut.error(), HasSubstr("cut short while it was in use"));

  // One byte in the middle is flipped, by a rename, as a restore from a backup might do. The daemon finds it when it
  // first touches that place, and `dataset verify` finds it too.
  std::string bytes;
  {
    std::ifstream file(dir_.path() / "whole.pfg", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  std::ofstream(dir_.path() / "flipped.pfg", std::ios::binary) << bytes;
  fs::rename(dir_.path() / "flipped.pfg", Store());
  const Output verified = daemon_->Client({"dataset", "verify", "kinds"});
  EXPECT_NE(verified.code, 0);
  EXPECT_THAT(verified.err, HasSubstr("checksum"));
  Submit("flipped", 1);
  const v1::Job flipped = daemon_->AwaitEnd("flipped");
  EXPECT_EQ(flipped.state(), v1::Job::STATE_FAILED);
  EXPECT_THAT(flipped.error(), HasSubstr("section"));

  fs::rename(dir_.path() / "whole.pfg", Store());
  EXPECT_EQ(daemon_->Client({"dataset", "verify", "kinds"}).code, 0);
  Submit("good", 1);
  EXPECT_EQ(daemon_->AwaitEnd("good").state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(daemon_->Stop(), 0);
}

TEST_F(LargeGraph, WhatDoesNotGoTogetherIsRefusedInALine) {
  daemon_->Import("kinds", dir_.path() / "source");
  const struct {
    const char* why;
    std::vector<std::string> arguments;
    const char* says;
  } kCases[] = {
      {"a model that needs features of edges",
       {"job", "submit", "--dataset", "kinds", "--architecture", "gine"},
       "spec.model.edge_inputs: gine reads features of edges, and the dataset's edges have none; accepted: another "
       "model, as gin or gatv2"},
      {"a model that reads none of them",
       {"job", "submit", "--dataset", "kinds", "--architecture", "sage", "--edge-inputs", "weights"},
       "weights is given for sage, which reads no features of edges; accepted: for gine and gatv2"},
      {"as many fan-outs as layers",
       {"job", "submit", "--dataset", "kinds", "--architecture", "sage", "--layers", "3", "--fan-out", "5,5"},
       "fan_outs"},
      {"binary loss on four classes",
       {"job", "submit", "--dataset", "kinds", "--architecture", "sage", "--fan-out", "5,5", "--loss", "bce"},
       "labels 0 and 1"},
      {"a budget of the whole graph",
       {"job", "submit", "--dataset", "kinds", "--architecture", "sage", "--batching", "budget", "--max-nodes", "900"},
       "spec.batching: is given for one large graph, whose batch is the whole of it; accepted: budget with "
       "neighbor_sampling.fan_outs"},
      {"a budget of labor",
       {"job", "submit", "--dataset", "kinds", "--architecture", "sage", "--fan-out", "5,5", "--sampler", "labor",
        "--batching", "budget", "--max-nodes", "9000"},
       "spec.neighbor_sampling.sampler: is labor with batching budget"},
      {"a budget that the seeds alone pass",
       {"job", "submit", "--dataset", "kinds", "--architecture", "sage", "--fan-out", "5,5", "--batching", "budget",
        "--max-nodes", "900"},
       "spec.batching.max_nodes: 900 is less than the 1024 seeds that a batch may have"},
      {"a sample of fewer nodes than it begins at",
       {"dataset", "sample", "kinds", "--fan-out", "2", "--count", "9", "--max-nodes", "8"},
       "neighbors.max_nodes: 8 is less than the 9 seeds"},
      {"a sample of a node that is not there",
       {"dataset", "sample", "kinds", "--fan-out", "2", "--nodes", "3000"},
       "3000"},
      {"a plan of no memory", {"dataset", "plan", "kinds", "--fan-out", "2", "--memory", "0"}, "memory_bytes"},
  };
  for (const auto& c : kCases) {
    const Output out = daemon_->Client(c.arguments);
    EXPECT_NE(out.code, 0) << c.why;
    EXPECT_THAT(out.err, HasSubstr(c.says)) << c.why;
  }
  EXPECT_EQ(daemon_->Stop(), 0);
}

// Kipf and Welling 2017 report 81.5 % for this network on Cora's public split.
TEST_F(LargeGraph, CoraIsLearntAsThePaperSays) {
  const fs::path cora = fs::path(PERMAFROST_SOURCE_DIR) / "../shared/data/node/cora";
  if (!fs::exists(cora)) GTEST_SKIP() << cora << " is not here";
  daemon_ = std::make_unique<Daemon>(dir_.path() / "state2", fs::canonical(cora));
  daemon_->Import("cora", fs::canonical(cora));
  const Output out =
      daemon_->Client({"job",    "submit", "--dataset",      "cora",   "--architecture", "gcn", "--hidden", "16",
                       "--lr",   "0.01",   "--weight-decay", "0.0005", "--dropout",      "0.5", "--epochs", "200",
                       "--seed", "1",      "--id",           "paper"});
  ASSERT_EQ(out.code, 0) << out.err;
  const v1::Job job = daemon_->AwaitEnd("paper");
  ASSERT_EQ(job.state(), v1::Job::STATE_SUCCEEDED) << job.error();
  EXPECT_GT(job.result().best_test_metric(), 0.77);
  EXPECT_EQ(daemon_->Stop(), 0);
}

}  // namespace
}  // namespace permafrost::e2e
