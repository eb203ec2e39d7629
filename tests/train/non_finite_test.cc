// Tests jobs whose loss becomes non-finite: they fail, or rewind and skip the batch that caused it.
#include <gmock/gmock.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "device/cpu/storage.h"
#include "recorder.h"
#include "runner_fixture.h"
#include "train/checkpoint_files.h"
#include "train/loop/checkpoint.h"
#include "train/loop/state_aside.h"

namespace permafrost::train {
namespace {

using ::testing::HasSubstr;

// Two of the hundred graphs have labels whose squares exceed every float.
class NonFiniteTest : public RunnerTest {
 protected:
  void SetUp() override {
    RunnerTest::SetUp();
    std::mt19937 random(3);
    std::vector<TinyGraph> graphs;
    for (int g = 0; g < kGraphs; ++g) {
      TinyGraph graph;
      const unsigned nodes = 2 + random() % 6;
      for (unsigned n = 0; n < nodes; ++n) graph.categories.push_back(random() % 3);
      for (unsigned n = 1; n < nodes; ++n) graph.edges.emplace_back(n - 1, n);
      graph.label = g == 20 || g == 60 ? 1e30 : static_cast<double>(graph.categories[0]);
      graphs.push_back(std::move(graph));
    }
    graphs_ = ImportGraphs(dir_.path() / "poisoned", graphs);
  }
  static spec::TrainOptions Poisoned(spec::NonFinite non_finite, int64_t every_steps = 0) {
    spec::TrainOptions options = Options();
    options.loss = spec::Loss::kMse;
    options.non_finite = non_finite;
    options.checkpoint.every_steps = every_steps;
    return options;
  }
  std::filesystem::path CheckpointsOf(const std::string& job) const {
    return dir_.path() / job / std::string(kCheckpointsFolder);
  }
};

TEST_F(NonFiniteTest, FailsByDefaultWithAReasonAndLeavesTheLastGoodCheckpoint) {
  Recorder told;
  const auto outcome = Run(Poisoned(spec::NonFinite::kFail, /*every_steps=*/1), "job", told);
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(GetReason(outcome.status()).reason, "NON_FINITE_LOSS");
  ASSERT_FALSE(told.checkpoints.empty());
  // The newest checkpoint is finite, so a run that skips batches continues from it.
  Recorder again;
  const auto resumed = Run(Poisoned(spec::NonFinite::kRewind, /*every_steps=*/1), "job", again);
  EXPECT_TRUE(resumed.ok()) << resumed.status();
  EXPECT_THAT(again.log, HasSubstr("resumed from the checkpoint of step"));
}

TEST_F(NonFiniteTest, RewindsAndSkipsAndEndsTheSameHoweverCheckpointsLie) {
  std::string weights;
  int64_t skipped = 0;
  for (const int64_t every_steps : {0, 1, 5, 7}) {
    Recorder told;
    const std::string job = "job" + std::to_string(every_steps);
    const auto outcome = Run(Poisoned(spec::NonFinite::kRewind, every_steps), job, told);
    ASSERT_TRUE(outcome.ok()) << outcome.status() << told.log;
    EXPECT_EQ(outcome->end, RunEnd::kSucceeded);
    EXPECT_GT(told.progress.skipped_batches, 0);
    EXPECT_THAT(told.log, HasSubstr("back to the newest checkpoint, rewind 1 of"));
    EXPECT_EQ(told.progress.step, 4 * 9) << "skipped batches count as steps";
    EXPECT_TRUE(std::isfinite(told.epochs.back().train_loss));
    if (weights.empty()) {
      weights = Artifact(job, kLastWeightsFile);
      skipped = told.progress.skipped_batches;
    }
    EXPECT_TRUE(Artifact(job, kLastWeightsFile) == weights) << "checkpoints every " << every_steps << " steps";
    EXPECT_EQ(told.progress.skipped_batches, skipped);
  }
}

TEST_F(NonFiniteTest, AnInterruptedJobSkipsTheSame) {
  Recorder whole;
  ASSERT_TRUE(Run(Poisoned(spec::NonFinite::kRewind, 5), "whole", whole).ok());
  Recorder last;
  for (int64_t stop_at = 2; last.progress.step < 4 * 9; stop_at += 3) {
    Recorder told;
    told.stop = [stop_at](const Progress& p) { return p.step >= stop_at ? StopRequest::kDrain : StopRequest::kNone; };
    const auto outcome = Run(Poisoned(spec::NonFinite::kRewind, 5), "parts", told);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    last = told;
    // Simulates a kill -9 before the checkpoint of the stop. The checkpoint before must lead to the same result.
    const auto found = ListCheckpoints(CheckpointsOf("parts"), /*verify=*/false);
    ASSERT_TRUE(found.ok());
    if (outcome->end != RunEnd::kSucceeded && found->size() > 1 && stop_at % 2 == 0) {
      std::filesystem::remove_all(CheckpointsOf("parts") / std::to_string(found->front().step));
    }
    ASSERT_LT(stop_at, 500);
  }
  Recorder end;
  ASSERT_TRUE(Run(Poisoned(spec::NonFinite::kRewind, 5), "parts", end).ok());
  EXPECT_TRUE(Artifact("parts", kLastWeightsFile) == Artifact("whole", kLastWeightsFile));
  EXPECT_EQ(end.progress.skipped_batches, whole.progress.skipped_batches);
}

// Nine batches per epoch, in groups of three.
TEST_F(NonFiniteTest, AGroupWhoseLastBatchIsSkippedIsStillAnUpdate) {
  int64_t last_of_groups = 0;
  for (uint64_t seed = 3; seed <= 5; ++seed) {
    std::string weights;
    for (const int64_t every_steps : {0, 4}) {
      spec::TrainOptions options = Poisoned(spec::NonFinite::kRewind, every_steps);
      options.seed = seed;
      options.optimizer.accumulate_steps = 3;
      const std::string job = "job-" + std::to_string(seed) + "-" + std::to_string(every_steps);
      Recorder told;
      const auto outcome = Run(options, job, told);
      ASSERT_TRUE(outcome.ok()) << outcome.status() << told.log;
      const CheckpointStore store(CheckpointsOf(job), 1, {}, [](std::string_view) {});
      const auto newest = store.FindNewest();
      ASSERT_TRUE(newest.ok() && newest->has_value()) << newest.status();
      const std::vector<int64_t>& skipped = (*newest)->state.skipped_steps;
      EXPECT_FALSE(skipped.empty());
      last_of_groups += std::ranges::count_if(skipped, [](int64_t step) { return step % 3 == 2; });
      double updates = 0;
      ASSERT_TRUE(store
                      .LoadTensors((*newest)->state.step,
                                   [&](CheckpointPart part, const std::vector<nn::NamedTensor>& tensors) {
                                     for (const nn::NamedTensor& t : tensors) {
                                       if (part == &Checkpoint::optimizer && t.name == "step") {
                                         updates = t.value.item<double>();
                                       }
                                     }
                                     return absl::OkStatus();
                                   })
                      .ok());
      EXPECT_EQ(updates, 4 * 3) << "at most two of a group's batches are skipped";
      if (weights.empty()) weights = Artifact(job, kLastWeightsFile);
      EXPECT_TRUE(Artifact(job, kLastWeightsFile) == weights) << "checkpoints every " << every_steps << " steps";
    }
  }
  EXPECT_GT(last_of_groups, 0);
}

TEST_F(NonFiniteTest, AStopLeavesNoCheckpointOfWhatIsNotFinite) {
  int spoiled = 0, whole = 0, read = 0;
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Recorder told;
    spec::TrainOptions options = Poisoned(spec::NonFinite::kFail);
    options.seed = seed;
    // For most seeds, this is after the first batch that spoils the weights. The loss is read only occasionally.
    told.stop = [](const Progress& p) { return p.step >= 8 ? StopRequest::kDrain : StopRequest::kNone; };
    const auto outcome = Run(options, "job" + std::to_string(seed), told);
    if (!outcome.ok()) {
      EXPECT_EQ(GetReason(outcome.status()).reason, "NON_FINITE_LOSS") << outcome.status();
      EXPECT_THAT(told.checkpoints, testing::IsEmpty());
      ++read;
    } else if (told.checkpoints.empty()) {
      EXPECT_THAT(told.log, HasSubstr("no checkpoint at the stop"));
      ++spoiled;
    } else {
      EXPECT_THAT(told.log, testing::Not(HasSubstr("no checkpoint at the stop")));
      ++whole;
    }
  }
  EXPECT_LT(whole, 8);
  if (spoiled == 0 && read > 0) GTEST_SKIP() << "each loss was read before the stop";
}

TEST_F(NonFiniteTest, AJobThatOnlyDivergesFailsAllTheSame) {
  Recorder told;
  spec::TrainOptions options = Poisoned(spec::NonFinite::kRewind);
  options.optimizer.learning_rate = 1e30;
  options.epochs = 40;
  const auto outcome = Run(options, "job", told);
  EXPECT_EQ(GetReason(outcome.status()).reason, "NON_FINITE_LOSS") << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("training diverged"));
}

// With one step per epoch, only the evaluation sees what the step did to the weights.
TEST_F(NonFiniteTest, AValidationThatIsNotFiniteFailsTheJob) {
  for (const spec::NonFinite policy : {spec::NonFinite::kFail, spec::NonFinite::kRewind}) {
    Recorder told;
    spec::TrainOptions options = Options();
    options.non_finite = policy;
    options.optimizer.algorithm = spec::OptimizerAlgorithm::kSgd;
    options.optimizer.learning_rate = 1e30;
    options.batch_size = 100;
    options.epochs = 1;
    const auto outcome = Run(options, std::string("job") + std::to_string(static_cast<int>(policy)), told);
    EXPECT_EQ(GetReason(outcome.status()).reason, "NON_FINITE_LOSS") << outcome.status();
    EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("the validation loss became"));
    EXPECT_THAT(told.checkpoints, testing::IsEmpty());
  }
}

TEST_F(NonFiniteTest, TenSkippedBatchesInARowFailTheJob) {
  Recorder told;
  spec::TrainOptions options = Poisoned(spec::NonFinite::kRewind);
  options.optimizer.algorithm = spec::OptimizerAlgorithm::kSgd;
  options.optimizer.learning_rate = 1e30;
  options.epochs = 6;
  const auto outcome = Run(options, "job", told);
  EXPECT_EQ(GetReason(outcome.status()).reason, "NON_FINITE_LOSS") << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("each of the last 10 batches was skipped"));
}

// The only batch contains the poisoned graph, so each step is skipped.
TEST_F(NonFiniteTest, AJobOfFewStepsFailsWhereAllAreSkipped) {
  Recorder told;
  spec::TrainOptions options = Poisoned(spec::NonFinite::kRewind);
  options.batch_size = 100;
  options.epochs = 3;
  const auto outcome = Run(options, "job", told);
  EXPECT_EQ(GetReason(outcome.status()).reason, "NON_FINITE_LOSS") << outcome.status();
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("each of the last 3 batches was skipped"));
  ASSERT_FALSE(told.epochs.empty());
  EXPECT_EQ(told.epochs.back().epoch, 2) << "one skipped batch, though it is the epoch's only one, ends nothing yet";
}

// The validation loss is infinite in every epoch, although the MAE is finite. Such an epoch is never the best one.
TEST_F(NonFiniteTest, UnderRewindAValidationThatIsNotFiniteIsLoggedUntilTheLastEpoch) {
  std::vector<TinyGraph> graphs;
  for (int g = 0; g < kGraphs; ++g) {
    TinyGraph& graph = graphs.emplace_back();
    graph.categories = {0, 1};
    graph.edges = {{0, 1}};
    graph.label = 1;
  }
  // The drawn splits do not depend on the labels.
  graphs[ImportGraphs(dir_.path() / "plain", graphs)->split(data::Split::kValid)->front()].label = 1e30;
  graphs_ = ImportGraphs(dir_.path() / "outlier", graphs);
  Recorder told;
  spec::TrainOptions options = Options();
  options.loss = spec::Loss::kMse;
  options.non_finite = spec::NonFinite::kRewind;
  const auto outcome = Run(options, "job", told);
  EXPECT_EQ(GetReason(outcome.status()).reason, "NON_FINITE_LOSS") << outcome.status();
  EXPECT_EQ(std::ssize(told.epochs), options.epochs - 1);
  EXPECT_THAT(told.log, HasSubstr("the validation loss became inf by epoch 1"));
}

TEST(CarefulSteps, HaveACopyOfWhatTheyWatchUntilTheyForgetIt) {
  device::InstallStorageAllocator();
  const at::Tensor weights = at::ones({1 << 16});
  const int64_t before = device::ReadStorageUse().bytes;
  CarefulSteps careful(/*until_step=*/3, {{"w", weights}});
  EXPECT_TRUE(careful.Watches(2));
  EXPECT_FALSE(careful.Watches(3));
  careful.Keep();
  EXPECT_GE(device::ReadStorageUse().bytes - before, int64_t{4} << 16);
  weights.fill_(NAN);
  EXPECT_FALSE(careful.AllFinite());
  careful.TakeBack();
  EXPECT_TRUE(careful.AllFinite());
  careful.Forget();
  EXPECT_EQ(device::ReadStorageUse().bytes, before);
}

TEST(FindNotFinite, NamesTheFirst) {
  const float nan = std::nanf("");
  const nn::NamedTensor good{"good", at::tensor({1.0F, -2.0F})}, bad{"bad", at::tensor({1.0F, nan})};
  const nn::NamedTensor whole{"whole", at::tensor({1, 2})}, empty{"empty", at::empty({0})};
  EXPECT_EQ(FindNotFinite({good, whole, empty}), "");
  EXPECT_EQ(FindNotFinite({good, bad, whole}), "bad");
  EXPECT_EQ(FindNotFinite({{"inf", at::tensor({-INFINITY})}}), "inf");
}

}  // namespace
}  // namespace permafrost::train
