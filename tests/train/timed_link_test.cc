// Tests predicting links that have times: no batch sees an edge that is not before its links.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/batching/pair_batch.h"
#include "device/cpu/storage.h"
#include "graph_runner.h"
#include "recorder.h"
#include "train/tasks/links.h"
#include "train/tasks/node_model_for.h"
#include "train/tasks/node_task.h"
#include "train/tasks/step_inputs.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

spec::TrainOptions TimedLinkJob(spec::TemporalSampling temporal) {
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.model.hidden_channels = 16;
  options.optimizer.learning_rate = 1e-2;
  options.loss = spec::Loss::kBce;
  options.links = {.enabled = true, .split = {.valid_part = 0.1, .test_part = 0.2, .seed = 4}, .eval_negatives = 20};
  options.nodes.fan_outs = {5, 4};
  options.nodes.temporal = temporal;
  options.batch_size = 70;
  options.epochs = 6;
  options.seed = 3;
  options.checkpoint.every_seconds = 0;
  return options;
}

class TimedLinkTest : public GraphRunnerTest {
 protected:
  TimedLinkTest() : GraphRunnerTest({.timestamped = true, .named = true}) {}
  static void SetUpTestSuite() { device::InstallStorageAllocator(); }
};

// Every message of a batch is older than the link that it serves.
TEST_F(TimedLinkTest, EachSeedHasTheTimeOfItsLink) {
  const spec::TrainOptions options = TimedLinkJob(spec::TemporalSampling::kUniform);
  const auto links = Links::Create(options, graph_, [] { return true; });
  ASSERT_TRUE(links.ok()) << links.status();
  const auto split = data::SplitLinksByTime(graph_, options.links.split, [] { return true; });
  ASSERT_TRUE(split.ok());
  const auto sampler = data::NeighborSampler::Create((*links)->messages()->view(),
                                                     SamplingOf(options, Mode::kTrain, graph_->summary()), 2);
  ASSERT_TRUE(sampler.ok()) << sampler.status();
  const auto& timestamps = graph_->view().in.timestamps;
  int64_t messages = 0, own_past = 0;
  for (uint32_t first = 0; first + 70 <= split->links[0].size(); first += 70) {
    std::vector<uint32_t> ids(70);
    for (uint32_t i = 0; i < 70; ++i) ids[i] = first + i;
    data::LinkBatch batch;
    ASSERT_TRUE((*links)->MakeBatch(ids, 1, batch).ok());
    ASSERT_EQ(batch.seeds.size(), batch.times.size());
    const auto check_end = [&](int64_t place, data::NodeId node, int64_t time) {
      EXPECT_EQ(batch.times[static_cast<size_t>(place)], time);
      EXPECT_EQ(batch.seeds[static_cast<size_t>(place)], node);
    };
    for (size_t i = 0; i < 70; ++i) {
      const data::Link& link = split->links[0][ids[i]];
      const int64_t time = split->times[0][ids[i]];
      check_end(batch.sources[i], link.source, time);
      check_end(batch.targets[i], link.target, time);
      check_end(batch.sources[70 + i], link.source, time);
      EXPECT_EQ(batch.times[static_cast<size_t>(batch.targets[70 + i])], time) << "a negative has its link's";
    }
    data::SampledSubgraph s;
    ASSERT_TRUE((*sampler)->Sample(batch.seeds, first, true, nullptr, s, batch.times).ok());
    for (size_t row = 0; row + 1 < s.offsets.size(); ++row) {
      for (int64_t e = s.offsets[row]; e < s.offsets[row + 1]; ++e) {
        ++messages;
        const int64_t time = timestamps[s.edge_places[static_cast<size_t>(e)]];
        ASSERT_LT(time, batch.times[s.owners[row]]);
        own_past += time > 0 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(messages, 1000);
  EXPECT_GT(own_past, 500);
}

TEST_F(TimedLinkTest, EvaluatesByBlocksAndRanksEveryLink) {
  for (const spec::TemporalSampling temporal : {spec::TemporalSampling::kUniform, spec::TemporalSampling::kLast}) {
    spec::TrainOptions options = TimedLinkJob(temporal);
    options.metrics = {spec::Metric::kMrr, spec::Metric::kRocAuc};
    const auto task = TaskOf(options);
    const auto all = task->EvaluateWhole(data::Split::kTest, true, [] { return true; });
    ASSERT_TRUE(all.ok()) << all.status();
    ASSERT_TRUE(all->has_value());
    EXPECT_THAT((*all)->ids, SizeIs(task->size(data::Split::kTest)));
    EXPECT_THAT((*all)->predictions, SizeIs(2 * task->size(data::Split::kTest)));
    for (const float score : (*all)->predictions) EXPECT_TRUE(std::isfinite(score));
    const auto again = task->EvaluateWhole(data::Split::kTest, true, [] { return true; });
    EXPECT_EQ((*again)->predictions, (*all)->predictions) << "the same samples at each evaluation";
    // Uses other batches and shapes, the last one partial. Apart from what is drawn, a score does not depend on its
    // batch.
    options.nodes.fan_outs = {-1, -1};
    spec::TrainOptions small = options;
    small.batch_size = 11;
    const auto big_task = TaskOf(options), small_task = TaskOf(small);
    nn::CopyInto(big_task->tensors().All(), small_task->tensors().All());
    const auto big = big_task->EvaluateWhole(data::Split::kTest, true, [] { return true; });
    const auto little = small_task->EvaluateWhole(data::Split::kTest, true, [] { return true; });
    ASSERT_TRUE(big.ok() && little.ok()) << big.status() << little.status();
    for (size_t i = 0; i < (*big)->predictions.size(); i += 2) {
      ASSERT_NEAR((*big)->predictions[i], (*little)->predictions[i], 1e-4);
    }
    EXPECT_TRUE(absl::IsCancelled(task->EvaluateWhole(data::Split::kTest, true, [] { return false; }).status()));
  }
}

TEST_F(TimedLinkTest, TrainsInTheGraphCacheAndGoesOnToTheBitAfterAStop) {
  spec::TrainOptions options = TimedLinkJob(spec::TemporalSampling::kLast);
  options.links.score = spec::LinkScore::kMlp;
  Recorder through, first, second;
  const auto whole = Run(options, "through", through);
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_LT(through.epochs.back().train_loss, through.epochs.front().train_loss);
  first.stop = [](const Progress& p) { return p.step >= 10 ? StopRequest::kDrain : StopRequest::kNone; };
  const auto stopped = Run(options, "parts", first);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  ASSERT_EQ(stopped->end, RunEnd::kDrained);
  ASSERT_TRUE(Run(options, "parts", second).ok());
  EXPECT_EQ(Artifact("parts", kLastWeightsFile), Artifact("through", kLastWeightsFile));
  EXPECT_EQ(Artifact("parts", kTestPredictionsFile), Artifact("through", kTestPredictionsFile));
  const std::string csv = Artifact("through", kTestPredictionsFile);
  EXPECT_THAT(csv, HasSubstr("source,target,time,score,rank\n"));
  // Expects one row for each link of the test split, whose links are the latest of all.
  const auto split = data::SplitLinksByTime(graph_, options.links.split, [] { return true; });
  ASSERT_TRUE(split.ok()) << split.status();
  std::istringstream lines(csv);
  std::string line;
  std::getline(lines, line);
  for (const int64_t time : split->times[2]) {
    ASSERT_TRUE(std::getline(lines, line));
    EXPECT_THAT(line, HasSubstr("," + std::to_string(time) + ","));
  }
  EXPECT_FALSE(std::getline(lines, line));
}

// Even without a time, the two ends of a link are sampled apart.
TEST_F(TimedLinkTest, DisjointLinksWithoutTimes) {
  spec::TrainOptions options = TimedLinkJob(spec::TemporalSampling::kNone);
  options.nodes.disjoint = true;
  Recorder told;
  const auto outcome = Run(options, "disjoint", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_LT(told.epochs.back().train_loss, told.epochs.front().train_loss);
}

}  // namespace
}  // namespace permafrost::train
