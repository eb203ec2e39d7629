// Tests links that begin at a node with an edge to every other node. They have no negatives, and so no rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/status.h"
#include "data/import/import.h"
#include "recorder.h"
#include "step_cases.h"
#include "temp_dir.h"
#include "train/loop/torch_runner.h"
#include "train/tasks/links.h"

namespace permafrost::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using GraphPtr = std::shared_ptr<const data::Graph>;

class LinkHubsTest : public testing::Test {
 protected:
  GraphPtr Import(const char* trial, bool inverse = true) {
    const fs::path store = dir_.path() / (std::string(trial) + (inverse ? "" : "-directed"));
    fs::create_directories(store);
    data::ImportOptions import;
    import.source = fs::path(PERMAFROST_SOURCE_DIR) / "tests/trials/links-full" / trial;
    import.inverse_edges = inverse ? data::InverseEdges::kAdd : data::InverseEdges::kKeep;
    const auto summary = data::Import(import, store, [](const auto&) {}, {});
    EXPECT_TRUE(summary.ok()) << summary.status();
    return *data::Graph::Open(store);
  }
  static spec::TrainOptions Job(double valid, double test) {
    spec::TrainOptions options = NodeJob(spec::Architecture::kSage);
    options.nodes.fan_outs = {};
    options.loss = spec::Loss::kBce;
    options.metrics = {spec::Metric::kMrr, spec::Metric::kRocAuc};
    options.links = {
        .enabled = true, .split = {.valid_part = valid, .test_part = test, .seed = 1}, .eval_negatives = 6};
    options.epochs = 2;
    return options;
  }
  absl::StatusOr<std::vector<std::string>> Fits(const spec::TrainOptions& options, const GraphPtr& graph) {
    return runner_->CheckFits({.options = options, .dataset = graph}, "spec.", [] { return true; });
  }

  const TempDir dir_;
  const std::unique_ptr<Runner> runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
};

TEST_F(LinkHubsTest, AJobWithoutALinkToRankIsRefused) {
  const GraphPtr complete = Import("k4");
  const auto refused = Fits(Job(0.3, 0.3), complete);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(GetViolations(refused.status()).at(0).field, "spec.link_prediction");
  EXPECT_THAT(GetViolations(refused.status())[0].description,
              HasSubstr("can be ranked: each begins at a node that has an edge to every other node"));
  // In a directed star, all links begin at the center.
  EXPECT_FALSE(Fits(Job(0.3, 0.4), Import("star", /*inverse=*/false)).ok());
}

TEST_F(LinkHubsTest, TrainingHasNoFalseNegatives) {
  const GraphPtr star = Import("star"), complete = Import("k4");
  for (const GraphPtr& graph : {star, complete}) {
    const auto links = Links::Create(Job(0, 0), graph, [] { return true; });
    ASSERT_TRUE(links.ok()) << links.status();
    data::LinkBatch batch;
    ASSERT_TRUE((*links)->MakeWholeBatch(0, batch).ok());
    int64_t negatives = 0, padding = 0;
    for (size_t i = batch.links; i < batch.labels.size(); ++i) {
      if (std::isnan(batch.labels[i])) {
        ++padding;
        continue;
      }
      ++negatives;
      bool ok = true;
      EXPECT_FALSE(data::HasEdge(graph->view(), static_cast<data::NodeId>(batch.sources[i]),
                                 static_cast<data::NodeId>(batch.targets[i]), ok));
      EXPECT_NE(batch.sources[i], batch.targets[i]);
    }
    EXPECT_EQ(negatives + padding, static_cast<int64_t>(batch.links));
    EXPECT_GT(padding, 0);
    EXPECT_EQ(negatives > 0, graph == star);
  }
}

TEST_F(LinkHubsTest, LinksOfAHubAreCountedAndNotRanked) {
  const GraphPtr star = Import("star");
  for (const bool sampled : {false, true}) {
    spec::TrainOptions options = Job(0.3, 0.4);
    if (sampled) options.nodes.fan_outs = {4, 4};
    const auto links = *Links::Create(options, star, [] { return true; });
    const int64_t valid = links->unranked(data::Split::kValid), test = links->unranked(data::Split::kTest),
                  all = links->size(data::Split::kTest);
    ASSERT_GT(test, 0);
    ASSERT_LT(test, all) << "some begin at a leaf";
    const auto notes = Fits(options, star);
    ASSERT_TRUE(notes.ok()) << notes.status();
    const std::string told = std::to_string(test) + " of the " + std::to_string(all) +
                             " links to test on begin at a node that has an edge to every other node: they have no "
                             "negatives and are not ranked";
    EXPECT_THAT(*notes, testing::Contains(told));
    Recorder context;
    const fs::path job = dir_.path() / (sampled ? "sampled" : "whole");
    const auto outcome = runner_->Run({.options = options, .dataset = star, .job_directory = job}, context);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_THAT(context.log, HasSubstr(told));
    const RunResult& result = *outcome->result;
    EXPECT_EQ(result.unranked_valid_links, valid);
    EXPECT_EQ(result.unranked_test_links, test);
    for (const double metric : result.best_test_metrics) EXPECT_TRUE(std::isfinite(metric));
    EXPECT_TRUE(std::isfinite(result.best_test_loss));
    const std::string csv = *ReadFile(job / "artifacts" / kTestPredictionsFile);
    int64_t without = 0;
    double sum = 0;
    std::istringstream lines(csv);
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) {
      const std::string rank = line.substr(line.rfind(',') + 1);
      EXPECT_EQ(rank.empty(), line.starts_with("0,")) << line;
      without += rank.empty() ? 1 : 0;
      if (!rank.empty()) sum += 1 / std::stod(rank);
    }
    EXPECT_EQ(without, test);
    EXPECT_NEAR(result.best_test_metric, sum / static_cast<double>(all - test), 1e-6);
  }
}

TEST_F(LinkHubsTest, FewerNegativesThanAskedForAreTold) {
  spec::TrainOptions options = Job(0.3, 0.4);
  options.links.eval_negatives = 50;
  const auto notes = Fits(options, Import("star"));
  ASSERT_TRUE(notes.ok()) << notes.status();
  EXPECT_THAT(*notes, testing::Contains(HasSubstr("begin at a node with fewer than 50 nodes that it has no edge to: "
                                                  "their 50 negatives repeat some")));
}

TEST_F(LinkHubsTest, AJobWithoutLinksToValidateOnSaysSo) {
  const auto notes = Fits(Job(0, 0.4), Import("star"));
  ASSERT_TRUE(notes.ok()) << notes.status();
  EXPECT_THAT(*notes, testing::Contains(HasSubstr("the job has no links to validate on")));
}

}  // namespace
}  // namespace permafrost::train
