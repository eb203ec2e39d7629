#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "recorder.h"
#include "runner_fixture.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

TEST_F(RunnerTest, LearnsAndTellsOfIt) {
  Recorder told;
  spec::TrainOptions options = Options();
  options.epochs = 30;
  options.graph_cache.policy = spec::Policy::kAlways;
  const auto outcome = Run(options, "job", told);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kSucceeded);
  ASSERT_EQ(told.epochs.size(), 30U);
  EXPECT_EQ(told.epochs[0].epoch, 1);
  EXPECT_LT(told.epochs.back().train_loss, 0.5 * told.epochs.front().train_loss);
  EXPECT_EQ(told.progress.step, 30 * 9);
  EXPECT_EQ(told.progress.graphs, 30 * 80);
  EXPECT_EQ(told.progress.nodes, 30 * graphs_->summary().splits[0].nodes);
  EXPECT_EQ(told.progress.edges, 30 * graphs_->summary().splits[0].edges);
  EXPECT_EQ(told.progress.padding_nodes, 30 * 9) << "the least padded form: one node a batch";
  EXPECT_EQ(told.progress.padding_edges, 0);
  EXPECT_GT(told.progress.phase_seconds.forward, 0);
  EXPECT_GT(told.progress.phase_seconds.backward, 0);
  EXPECT_GT(told.progress.phase_seconds.optimizer, 0);

  const RunResult& result = *outcome->result;
  const auto best = std::min_element(told.epochs.begin(), told.epochs.end(),
                                     [](const auto& a, const auto& b) { return a.valid_metric < b.valid_metric; });
  EXPECT_EQ(result.best_epoch, best->epoch);
  EXPECT_EQ(result.best_valid_metric, best->valid_metric);
  EXPECT_TRUE(std::isfinite(result.best_test_metric));
  EXPECT_EQ(result.final_test_metric, result.final_test_loss) << "the loss is L1";
  EXPECT_GT(result.num_parameters, 0);
  EXPECT_THAT(Artifact("job", kTestPredictionsFile), testing::StartsWith("graph,prediction_0\n"));
  const std::string predictions = Artifact("job", kTestPredictionsFile);
  EXPECT_EQ(std::count(predictions.begin(), predictions.end(), '\n'), 1 + 10);
}

// Returns the epoch after which a run ends by `patience`. `epochs` are those of a run without patience.
int64_t EndByPatience(const std::vector<EpochMetrics>& epochs, int64_t patience) {
  int64_t best = 1;
  for (const EpochMetrics& epoch : epochs) {
    if (epoch.valid_metric < epochs[static_cast<size_t>(best - 1)].valid_metric) best = epoch.epoch;
    if (epoch.epoch - best >= patience) return epoch.epoch;
  }
  return std::ssize(epochs);
}

TEST_F(RunnerTest, PatienceEndsARunAfterEpochsThatGainedNothing) {
  spec::TrainOptions options = Options();
  options.epochs = 40;
  options.optimizer.learning_rate = 0.05;
  Recorder all;
  ASSERT_TRUE(Run(options, "all", all).ok());
  const int64_t end = EndByPatience(all.epochs, 3);
  ASSERT_LT(end, 40) << "every three epochs gained something";
  options.patience = 3;
  Recorder patient;
  const auto outcome = Run(options, "patient", patient);
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->end, RunEnd::kSucceeded);
  ASSERT_EQ(std::ssize(patient.epochs), end);
  EXPECT_EQ(outcome->result->best_epoch, end - 3);
  EXPECT_EQ(patient.progress.epoch, end);
  EXPECT_EQ(patient.progress.checkpoint_step, end * 9) << "its last weights are kept";
  ASSERT_FALSE(patient.stored_as_last.empty());
  EXPECT_TRUE(patient.stored_as_last.back()) << "the run cannot do without this checkpoint";
  EXPECT_THAT(patient.log, HasSubstr("none of the last 3 validated better than epoch " + std::to_string(end - 3)));
  for (size_t i = 0; i < patient.epochs.size(); ++i) {
    EXPECT_EQ(patient.epochs[i].valid_metric, all.epochs[i].valid_metric);
  }

  // The job has ended its last epoch. A resumed run starts no other.
  Recorder resumed;
  const auto again = Run(options, "patient", resumed);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(resumed.epochs.empty());
  EXPECT_EQ(again->result->best_test_metric, outcome->result->best_test_metric);
}

TEST_F(RunnerTest, EqualSeedsGiveEqualBits) {
  Recorder a, b, c;
  spec::TrainOptions other = Options();
  other.seed = 4;
  ASSERT_TRUE(Run(Options(), "a", a).ok());
  ASSERT_TRUE(Run(Options(), "b", b).ok());
  ASSERT_TRUE(Run(other, "c", c).ok());
  EXPECT_EQ(Artifact("a", kLastWeightsFile), Artifact("b", kLastWeightsFile));
  EXPECT_NE(Artifact("a", kLastWeightsFile), Artifact("c", kLastWeightsFile));
}

TEST_F(RunnerTest, EveryStepIsCountedOnce) {
  using spec::OnMiss;
  using spec::Policy;
  using spec::Shapes;
  const spec::PolicyOptions kPolicies[] = {{Policy::kAlways},
                                           {Policy::kNever},
                                           {Policy::kClearPerStep},
                                           {Policy::kFreeze, 0, OnMiss::kPad, Shapes::kDynamic},
                                           {Policy::kFreeze, 4, OnMiss::kPad, Shapes::kExact},
                                           {Policy::kFreeze, 4, OnMiss::kEager, Shapes::kExact},
                                           {Policy::kFreeze, 4, OnMiss::kTransient, Shapes::kExact}};
  std::vector<double> losses;
  for (const auto& policy : kPolicies) {
    Recorder told;
    spec::TrainOptions options = Options();
    options.graph_cache = policy;
    const std::string job = std::string(spec::kPolicyNames.Name(policy.policy)) + "-" +
                            std::string(spec::kOnMissNames.Name(policy.on_miss)) + "-" +
                            std::string(spec::kShapesNames.Name(policy.shapes));
    const auto outcome = Run(options, job, told);
    ASSERT_TRUE(outcome.ok()) << job;
    const int64_t tested = outcome->result->best_epoch == 4 ? 1 : 2;
    const graphcache::ModeStats &train = told.cache.of(Mode::kTrain), &eval = told.cache.of(Mode::kEval);
    EXPECT_EQ(train.hits + train.padded_hits + train.misses, 4 * 9) << job;
    EXPECT_EQ(eval.hits + eval.padded_hits + eval.misses, (4 + tested) * 2) << job << ": 10 graphs a split";
    EXPECT_EQ(train.nodes, told.progress.nodes) << job;
    EXPECT_EQ(train.padding_nodes, told.progress.padding_nodes) << job;
    EXPECT_EQ(train.graph_breaks + eval.graph_breaks, 0) << job;
    EXPECT_EQ(static_cast<int64_t>(told.entries.size()), train.entries + eval.entries) << job;
    ASSERT_EQ(told.epochs.size(), 4U) << job;
    for (size_t e = 0; e < 4; ++e) {
      EXPECT_EQ(told.epochs[e].steps, 9 * (static_cast<int64_t>(e) + 1)) << job;
    }
    const EpochMetrics& last = told.epochs.back();
    EXPECT_EQ(last.exact_hits, train.hits) << job;
    EXPECT_EQ(last.padded_hits, train.padded_hits) << job;
    EXPECT_EQ(last.eager_steps, train.eager_steps) << job;
    EXPECT_EQ(last.captures, train.captures) << job;
    EXPECT_EQ(last.nodes, train.nodes) << job;
    EXPECT_EQ(last.edges, train.edges) << job;
    EXPECT_EQ(last.padding_nodes, train.padding_nodes) << job;
    EXPECT_EQ(last.padding_edges, train.padding_edges) << job;
    if (policy.policy == Policy::kNever) {
      EXPECT_EQ(last.cache_bytes, 0) << job;
    } else if (policy.policy == Policy::kFreeze) {
      EXPECT_EQ(last.cache_bytes, train.entry_bytes + eval.entry_bytes + told.cache.shared_bytes) << job;
      EXPECT_GT(last.cache_bytes, 0) << job;
    }
    if (policy.policy == Policy::kNever) {
      EXPECT_EQ(train.eager_steps, 36);
      EXPECT_EQ(train.captures, 0);
    }
    if (policy.policy == Policy::kClearPerStep) {
      EXPECT_EQ(train.captures, 36);
    }
    if (policy.policy == Policy::kFreeze) {
      EXPECT_TRUE(told.cache.frozen) << job;
      EXPECT_LE(train.entries, 5) << job;
    }
    if (policy.policy == Policy::kFreeze && policy.on_miss == OnMiss::kPad) {
      EXPECT_EQ(train.eager_steps + train.transient_steps + train.frozen_captures, 0);
    }
    losses.push_back(told.epochs.back().train_loss);
  }
  // These compute exactly the same sums: always, never, clear-per-step, and one executable for every shape.
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
  EXPECT_EQ(losses[0], losses[3]);
  for (const double loss : losses) EXPECT_NEAR(loss, losses[0], 1e-3 * std::abs(losses[0]));
}

TEST_F(RunnerTest, RejectFailsTheJobAtTheFirstMiss) {
  Recorder told;
  spec::TrainOptions options = Options();
  options.graph_cache = {spec::Policy::kFreeze, 2, spec::OnMiss::kReject, spec::Shapes::kExact};
  const auto outcome = Run(options, "job", told);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetReason(outcome.status()).reason, "GRAPH_CACHE_MISS");
}

TEST_F(RunnerTest, StorageIsConstantToTheByteAfterAFreeze) {
  for (const spec::Shapes shapes : {spec::Shapes::kExact, spec::Shapes::kDynamic}) {
    Recorder told;
    spec::TrainOptions options = Options();
    options.epochs = 6;
    options.graph_cache = {.policy = spec::Policy::kFreeze, .freeze_at = 3, .shapes = shapes, .audit_every = 0};
    std::map<int64_t, int64_t> bytes;  // by step from the freeze on, within epochs and across evaluations
    told.stop = [&](const Progress& p) {
      if (told.cache.frozen && p.step < int64_t{6} * 9) bytes[p.step] = runner_->storage_use().bytes;
      return StopRequest::kNone;
    };
    const std::string job(spec::kShapesNames.Name(shapes));
    ASSERT_TRUE(Run(options, job, told).ok());
    ASSERT_LT(bytes.begin()->first, 9) << "the freeze is in the first epoch";
    for (const auto& [step, count] : bytes) EXPECT_EQ(count, bytes.begin()->second) << job << ", step " << step;
  }
}

TEST_F(RunnerTest, DivergenceFailsWithTheStepAndTheRate) {
  Recorder told;
  spec::TrainOptions options = Options();
  options.loss = spec::Loss::kMse;
  options.optimizer.learning_rate = 1e30;
  const auto outcome = Run(options, "job", told);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("training diverged"));
}

TEST_F(RunnerTest, OtherThreadCountIsSaidAloud) {
  Recorder first, second;
  first.stop = [](const Progress& p) { return p.step >= 3 ? StopRequest::kDrain : StopRequest::kNone; };
  ASSERT_TRUE(Run(Options(), "job", first).ok());
  runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 1});
  ASSERT_TRUE(Run(Options(), "job", second).ok());
  EXPECT_THAT(second.log, HasSubstr("began with 2 threads and goes on with 1"));
}

TEST_F(RunnerTest, AnAbsentDeviceIsNamed) {
  const auto runner = MakeTorchRunner({.device = DeviceKind::kMps});
  if (runner.ok()) GTEST_SKIP() << "this machine has MPS";
  EXPECT_THAT(std::string(runner.status().message()), HasSubstr("device: mps is not present here"));
}

TEST_F(RunnerTest, WhatASetCannotServeIsRefusedBeforeTheRun) {
  const data::GraphSetSummary fine = graphs_->summary();
  const auto with = [&](const auto& change) {
    data::GraphSetSummary s = fine;
    change(s);
    return s;
  };
  const struct {
    const char* why;
    spec::TrainOptions options;
    data::GraphSetSummary summary;
    const char* field;
    const char* says;
  } kCases[] = {
      {"no training graphs", Options(), with([](auto& s) { s.splits[0] = {}; }), "spec.dataset",
       "train split is empty"},
      {"no labels", Options(), with([](auto& s) { s.num_targets = 0; }), "spec.dataset", "no labels"},
      {"negative categories", Options(), with([](auto& s) { s.node_features.min = {-2}; }), "spec.dataset",
       "node feature column 0 has integers -2..2"},
      {"ids as categories", Options(), with([](auto& s) { s.edge_features.max = {5e6}; }), "spec.dataset",
       "edge feature column 0"},
  };
  EXPECT_TRUE(runner_->CheckCompatible(Options(), fine, "spec.").ok());
  for (const auto& c : kCases) {
    const absl::Status status = runner_->CheckCompatible(c.options, c.summary, "spec.");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    ASSERT_EQ(GetViolations(status).size(), 1U) << c.why;
    EXPECT_EQ(GetViolations(status)[0].field, c.field) << c.why;
    EXPECT_THAT(GetViolations(status)[0].description, HasSubstr(c.says)) << c.why;
  }
}

// The job is refused at admission, and again when its run begins.
TEST_F(RunnerTest, WhatIsBeyondTheMachinesMemoryIsRefused) {
  spec::TrainOptions giant = Options();
  giant.model = {.hidden_channels = 4096, .num_layers = 64};
  const auto always = [] { return true; };
  EXPECT_EQ(runner_->CheckFits({.options = Options(), .dataset = graphs_}, "spec.", always).status(), absl::OkStatus());
  Recorder told;
  for (const absl::Status& status :
       {runner_->CheckFits({.options = giant, .dataset = graphs_}, "spec.", always).status(),
        Run(giant, "job", told).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    ASSERT_EQ(GetViolations(status).size(), 1U);
    EXPECT_EQ(GetViolations(status)[0].field, "spec.model");
    EXPECT_THAT(GetViolations(status)[0].description, HasSubstr("this process may use"));
  }
}

}  // namespace
}  // namespace permafrost::train
