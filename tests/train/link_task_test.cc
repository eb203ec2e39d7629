// Tests link prediction on one large graph: which messages a batch has, what is learned, and that a resumed run ends
// with the same bits.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/store/other_features.h"
#include "device/cpu/storage.h"
#include "graph_runner.h"
#include "recorder.h"
#include "train/tasks/job_data.h"
#include "train/tasks/links.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/node_task.h"
#include "train/tasks/step_inputs.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

spec::TrainOptions LinkJob(std::vector<int64_t> fan_outs) {
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.model.hidden_channels = 16;
  options.optimizer.learning_rate = 1e-2;
  options.loss = spec::Loss::kBce;
  options.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.2, .seed = 4}, .eval_negatives = 20};
  options.nodes.fan_outs = std::move(fan_outs);
  options.batch_size = 70;
  options.epochs = 12;
  options.seed = 3;
  options.checkpoint.every_seconds = 0;
  return options;
}

class LinkTaskTest : public GraphRunnerTest {
 protected:
  LinkTaskTest() : GraphRunnerTest({.named = true}) {}
  static void SetUpTestSuite() { device::InstallStorageAllocator(); }
};

// A link that a batch predicts passes no message in this batch. A link of validation or test passes none in any
// batch.
TEST_F(LinkTaskTest, MessagesDoNotTellWhatIsToBePredicted) {
  const spec::TrainOptions options = LinkJob({-1, -1});
  const auto task = TaskOf(options);
  const auto split = data::SplitLinks(graph_, options.links.split, [] { return true; });
  ASSERT_TRUE(split.ok());
  std::set<std::pair<int64_t, int64_t>> predicted;  // over the whole epoch
  const auto batches = task->TrainBatches(0, 0);
  int64_t messages = 0;
  while (true) {
    const auto batch = batches->Next();
    ASSERT_TRUE(batch.ok()) << batch.status();
    if (*batch == nullptr) break;
    const auto inputs = (*batch)->PadDynamic(0);
    ASSERT_TRUE(inputs.ok()) << inputs.status();
    const nn::NodeBlock block = NodeBlockOf(**inputs);
    const nn::NodePairs& pairs = block.pairs;
    ASSERT_EQ(block.labels.size(0), 140) << "70 links, a negative each, in every batch";
    // Collects the (source, target) nodes of each message between two seeds.
    const auto ids = (*batch)->ids();
    std::set<std::pair<uint32_t, uint32_t>> between;
    for (size_t row = 0; row < ids.size(); ++row) {
      for (int64_t e = block.offsets[static_cast<int64_t>(row)].item<int64_t>();
           e < block.offsets[static_cast<int64_t>(row) + 1].item<int64_t>(); ++e) {
        const auto source = static_cast<size_t>(block.sources[e].item<int64_t>());
        if (source < ids.size()) between.emplace(ids[source], ids[row]);
        ++messages;
      }
    }
    for (const auto& [source, target] : between) {
      EXPECT_TRUE(source == target || data::SplitOf(options.links.split, source, target) == data::Split::kTrain);
    }
    for (int64_t p = 0; p < 140; ++p) {
      const auto label = block.labels[p][0].item<float>();
      if (std::isnan(label)) continue;
      const uint32_t source = ids[static_cast<size_t>(pairs.sources[p].item<int64_t>())],
                     target = ids[static_cast<size_t>(pairs.targets[p].item<int64_t>())];
      bool ok = true;
      ASSERT_EQ(data::HasEdge(graph_->view(), source, target, ok), label == 1);
      if (label != 1) continue;
      EXPECT_FALSE(between.contains({source, target}));
      EXPECT_FALSE(between.contains({target, source}));
      EXPECT_TRUE(predicted.emplace(source, target).second) << "a link stands in two batches";
    }
  }
  EXPECT_GT(messages, 1000);
  EXPECT_EQ(predicted.size(), split->links[0].size());
}

// The full in-degree would reveal how many edges of a node were held out.
TEST_F(LinkTaskTest, DegreesCountNoEdgeThatWasHeldOut) {
  spec::TrainOptions options = LinkJob({-1, -1});
  options.model.node_inputs = spec::NodeInputs::kDegree;
  const auto with_degrees = WithNodeInputs(options.model, graph_);
  ASSERT_TRUE(with_degrees.ok()) << with_degrees.status();
  const auto links = Links::Create(options, *with_degrees, [] { return true; });
  ASSERT_TRUE(links.ok()) << links.status();
  const data::GraphView& view = (*links)->messages()->view();
  const auto& features = std::get<data::SparseFeatures>(view.node_features);
  EXPECT_EQ(features.width, data::kDegreeCap + 1);
  int64_t fewer = 0;
  for (uint64_t v = 0; v < view.nodes; ++v) {
    const uint64_t degree = view.in.offsets[v + 1] - view.in.offsets[v],
                   of_all = graph_->view().in.offsets[v + 1] - graph_->view().in.offsets[v];
    ASSERT_LT(of_all, 256U);
    ASSERT_EQ(features.columns[v], degree) << "node " << v;
    fewer += degree < of_all ? 1 : 0;
  }
  EXPECT_GT(fewer, 10);
}

// Sampled jobs are evaluated layer by layer, and jobs on the whole graph in one block.
TEST_F(LinkTaskTest, IsEvaluatedAlikeOnTheWholeGraphAndLayerByLayer) {
  for (const spec::LinkScore score : {spec::LinkScore::kDot, spec::LinkScore::kMlp}) {
    spec::TrainOptions sampled = LinkJob({3, 3}), whole = LinkJob({});
    sampled.links.score = whole.links.score = score;
    sampled.metrics = whole.metrics = {spec::Metric::kMrr, spec::Metric::kHitsAt10, spec::Metric::kRocAuc,
                                       spec::Metric::kAveragePrecision};
    const auto a = TaskOf(sampled), b = TaskOf(whole);
    nn::CopyInto(a->tensors().All(), b->tensors().All());
    const auto x = a->EvaluateWhole(data::Split::kTest, true, [] { return true; });
    const auto y = b->EvaluateWhole(data::Split::kTest, true, [] { return true; });
    ASSERT_TRUE(x.ok() && y.ok()) << x.status() << y.status();
    ASSERT_TRUE(x->has_value() && y->has_value());
    EXPECT_NEAR((*x)->loss, (*y)->loss, 1e-5);
    ASSERT_THAT((*x)->metrics, SizeIs(4));
    for (size_t m = 0; m < 4; ++m) EXPECT_NEAR((*x)->metrics[m], (*y)->metrics[m], 1e-4) << m;
    ASSERT_EQ((*x)->predictions.size(), (*y)->predictions.size());
    ASSERT_EQ((*x)->ids.size() * 2, (*x)->predictions.size());
    for (size_t i = 0; i < (*x)->predictions.size(); i += 2)
      ASSERT_NEAR((*x)->predictions[i], (*y)->predictions[i], 1e-5);
    const auto stopped = a->EvaluateWhole(data::Split::kTest, true, [] { return false; });
    EXPECT_TRUE(absl::IsCancelled(stopped.status()));
  }
}

TEST_F(LinkTaskTest, LearnsLinksAndTellsTheirRanks) {
  for (const bool whole : {false, true}) {
    spec::TrainOptions options = LinkJob(whole ? std::vector<int64_t>{} : std::vector<int64_t>{5, 5});
    options.metrics = {spec::Metric::kMrr, spec::Metric::kRocAuc, spec::Metric::kHitsAt50};
    if (whole) options.epochs = 60;
    Recorder told;
    const std::string job = whole ? "whole" : "sampled";
    const auto outcome = Run(options, job, told);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    const RunResult& result = *outcome->result;
    // Random ranking has a mean reciprocal rank of (1 + 1/2 + ... + 1/21) / 21.
    EXPECT_GT(result.best_test_metric, 0.21) << job;
    EXPECT_LT(told.epochs.back().train_loss, told.epochs.front().train_loss);
    ASSERT_THAT(result.best_test_metrics, SizeIs(3));
    EXPECT_GT(result.best_test_metrics[1], 0.55) << job << ", ROC-AUC";
    const std::string csv = Artifact(job, kTestPredictionsFile);
    EXPECT_THAT(csv, HasSubstr("source,target,score,rank\n"));
    EXPECT_THAT(csv, HasSubstr("\"the ")) << "names of nodes";
    std::istringstream lines(csv);
    std::string line;
    std::getline(lines, line);
    double sum = 0;
    int64_t links = 0;
    while (std::getline(lines, line)) {
      sum += 1 / std::stod(line.substr(line.rfind(',') + 1));
      ++links;
    }
    EXPECT_EQ(links, TaskOf(options)->size(data::Split::kTest));
    EXPECT_NEAR(sum / static_cast<double>(links), result.best_test_metric, 1e-6);
  }
}

TEST_F(LinkTaskTest, GoesOnToTheBitAfterAStop) {
  for (const bool whole : {false, true}) {
    spec::TrainOptions options = LinkJob(whole ? std::vector<int64_t>{} : std::vector<int64_t>{4, 3});
    options.links.score = spec::LinkScore::kMlp;
    options.model.dropout = 0.2;
    options.epochs = 4;
    Recorder through, first, second;
    const std::string name = whole ? "whole" : "sampled";
    ASSERT_TRUE(Run(options, name + "-through", through).ok());
    // Stops in the middle of an epoch, if an epoch has more than one step.
    first.stop = [&](const Progress& p) {
      return p.step >= (whole ? 2 : 10) ? StopRequest::kDrain : StopRequest::kNone;
    };
    const auto stopped = Run(options, name, first);
    ASSERT_TRUE(stopped.ok()) << stopped.status();
    ASSERT_EQ(stopped->end, RunEnd::kDrained);
    ASSERT_TRUE(Run(options, name, second).ok());
    EXPECT_EQ(Artifact(name, kLastWeightsFile), Artifact(name + "-through", kLastWeightsFile)) << name;
    EXPECT_EQ(Artifact(name, kTestPredictionsFile), Artifact(name + "-through", kTestPredictionsFile)) << name;
  }
}

TEST_F(LinkTaskTest, ItsSplitAndItsNegativesDoNotFollowTheSeedOfTheWeights) {
  spec::TrainOptions options = LinkJob({4, 3}), other = options;
  other.seed = 17;
  const auto a = TaskOf(options), b = TaskOf(other);
  nn::CopyInto(a->tensors().All(), b->tensors().All());
  const auto x = a->EvaluateWhole(data::Split::kValid, true, [] { return true; });
  const auto y = b->EvaluateWhole(data::Split::kValid, true, [] { return true; });
  ASSERT_TRUE(x.ok() && y.ok());
  EXPECT_EQ((*x)->predictions, (*y)->predictions);
}

// A score takes 24 bytes: it is kept, copied beside the scores of the other kind, copied with its label for a metric,
// and sorted.
TEST_F(LinkTaskTest, WhatAnEvaluationKeepsCounts) {
  const data::GraphSummary& graph = graph_->summary();
  const auto bytes = [&](int64_t negatives) {
    spec::TrainOptions options = LinkJob({4, 3});
    options.links.eval_negatives = negatives;
    const auto model = NodeModelFor(options, graph, kNoLimits, "spec.");
    EXPECT_TRUE(model.ok()) << model.status();
    return static_cast<double>(NodeJobBytes(options, *model, graph, kNoLimits));
  };
  const double evaluated = 0.2 * static_cast<double>(graph.edges) / 2;
  // The tolerance allows for rounding to whole bytes.
  EXPECT_NEAR(bytes(10'000) - bytes(1'000), 24 * evaluated * 9'000, 2);
}

TEST_F(LinkTaskTest, NeedsAnEdgeToTrainOn) {
  spec::TrainOptions options = LinkJob({});
  options.links.split = {.valid_part = 0.5, .test_part = 0.4999999};
  const auto few = Links::Create(options, graph_, [] { return true; });
  ASSERT_FALSE(few.ok());
  EXPECT_EQ(GetViolations(few.status()).front().field, "spec.link_prediction");
}

}  // namespace
}  // namespace permafrost::train
