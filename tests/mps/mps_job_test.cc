// Tests whole jobs on the device mps: with the fake hooks, the stand-in's kernels, and a cache of graphs that grows
// as in libtorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../train/recorder.h"
#include "../train/step_cases.h"
#include "base/file.h"
#include "device/mps/stand_in.h"
#include "fake_mps.h"
#include "temp_dir.h"
#include "train/loop/device_self_test.h"
#include "train/loop/torch_runner.h"

namespace permafrost::train {
namespace {

using device::FakeMps;
using graphcache::Cause;
using spec::Policy;
using testing::HasSubstr;
using testing::IsEmpty;

// Records the number of the device's graphs after each step.
class GraphRecorder final : public Recorder {
 public:
  void OnGraphCache(const graphcache::Snapshot& snapshot,
                    std::shared_ptr<const std::vector<graphcache::EntryInfo>> list) override {
    Recorder::OnGraphCache(snapshot, std::move(list));
    (snapshot.frozen ? sealed : open).push_back(FakeMps::Get().graphs());
  }
  std::vector<int64_t> sealed, open;
};

class MpsJobTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!device::MpsStandIn::present()) GTEST_SKIP() << "MPS is real here";
    fake_.Reset();
  }
  std::unique_ptr<Runner> Open(DeviceKind kind = DeviceKind::kMps, double threshold = 0.9) {
    auto runner = MakeTorchRunner({.device = kind, .threads = 2, .mps_driver_threshold = threshold});
    EXPECT_TRUE(runner.ok()) << runner.status();
    return runner.ok() ? *std::move(runner) : nullptr;
  }
  data::OpenedDataset Graphs() {
    if (!graphs_) graphs_ = ImportTinyGraphs(dir_.path() / "graphs", 100);
    return graphs_;
  }
  spec::TrainOptions Options(Policy policy = Policy::kFreeze) {
    spec::TrainOptions options = GraphJob();
    options.checkpoint.every_seconds = 0;
    options.graph_cache.policy = policy;
    options.graph_cache.rungs = 3;
    return options;
  }
  absl::StatusOr<RunOutcome> Run(Runner& runner, const spec::TrainOptions& options, const data::OpenedDataset& dataset,
                                 const std::string& job, RunContext& context) {
    return runner.Run({.options = options, .dataset = dataset, .job_directory = dir_.path() / job}, context);
  }
  void ExpectSucceeds(Runner& runner, const spec::TrainOptions& options, const std::string& job, Recorder& context) {
    const auto outcome = Run(runner, options, Graphs(), job, context);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_EQ(outcome->end, RunEnd::kSucceeded);
    EXPECT_THAT(fake_.violations(), IsEmpty());
  }
  std::string LastWeights(const std::string& job) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / kLastWeightsFile);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }
  static int64_t Emptied(const Runner& runner, EmptyReason reason) {
    return runner.device_state().empty_caches.at(std::string(kEmptyReasonNames.Name(reason)));
  }
  // Returns the number of steps of training and evaluation together.
  static int64_t StepsOf(const Recorder& context) {
    int64_t steps = 0;
    for (const auto& mode : context.cache.modes) steps += mode.hits + mode.padded_hits + mode.misses;
    return steps;
  }

  const TempDir dir_;
  std::shared_ptr<const data::GraphSet> graphs_;
  FakeMps& fake_ = FakeMps::Get();
  const device::MpsStandIn within_;
};

TEST_F(MpsJobTest, ASealedJobAddsNoGraphInTrainingLastBatchEvaluationOrTest) {
  const auto runner = Open();
  GraphRecorder context;
  ExpectSucceeds(*runner, Options(), "job", context);
  ASSERT_FALSE(context.sealed.empty());
  EXPECT_GT(context.sealed.front(), 0);
  EXPECT_THAT(context.sealed, testing::Each(context.sealed.front()));
  EXPECT_EQ(runner->device_state().graph_entries, context.sealed.front());
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) EXPECT_EQ(context.cache.of(mode).misses, 0);

  Recorder on_cpu;
  const auto cpu = Open(DeviceKind::kCpu);
  ExpectSucceeds(*cpu, Options(), "cpu", on_cpu);
  ASSERT_EQ(context.epochs.size(), on_cpu.epochs.size());
  for (size_t e = 0; e < on_cpu.epochs.size(); ++e) {
    EXPECT_NEAR(context.epochs[e].train_loss, on_cpu.epochs[e].train_loss, 5e-3) << e;
    EXPECT_NEAR(context.epochs[e].valid_metric, on_cpu.epochs[e].valid_metric, 5e-3) << e;
  }
}

// The cases include jobs on sampled blocks and on whole graphs.
TEST_F(MpsJobTest, EveryModelsSealedJobIsFlat) {
  const auto runner = Open();
  int jobs = 0;
  for (const StepCase& c : StepCases()) {
    const std::string name = std::to_string(++jobs);
    GraphRecorder context;
    spec::TrainOptions options = c.options;
    options.epochs = 2;
    options.checkpoint.every_seconds = 0;
    const auto outcome = Run(*runner, options, Write(c.data, dir_.path() / ("data" + name)), name, context);
    ASSERT_TRUE(outcome.ok()) << c.why << ": " << outcome.status();
    EXPECT_THAT(fake_.violations(), IsEmpty()) << c.why;
    ASSERT_FALSE(context.sealed.empty()) << c.why;
    // An evaluation of links is no step. The first one adds the graphs that later ones, on either split, reuse.
    const auto grows = std::ranges::adjacent_find(context.sealed, std::ranges::not_equal_to());
    const int64_t from = c.evaluates_by_steps() || grows == context.sealed.end() ? context.sealed.front() : grows[1];
    EXPECT_EQ(context.sealed.back(), from) << c.why;
  }
}

TEST_F(MpsJobTest, UnderAlwaysItGrows) {
  const auto runner = Open();
  GraphRecorder context;
  ExpectSucceeds(*runner, Options(Policy::kAlways), "job", context);
  ASSERT_GT(context.open.size(), 10u);
  EXPECT_GT(context.open.back(), 2 * context.open[1]);
  EXPECT_EQ(Emptied(*runner, EmptyReason::kJob), 1) << "before it began";
}

TEST_F(MpsJobTest, PoliciesThatKeepNothingEmptyTheDeviceAfterEachStep) {
  for (const auto& [policy, reason] :
       {std::pair(Policy::kNever, EmptyReason::kNever), std::pair(Policy::kClearPerStep, EmptyReason::kClearPerStep)}) {
    fake_.Reset();
    const auto runner = Open();
    GraphRecorder context;
    const std::string name(kEmptyReasonNames.Name(reason));
    ExpectSucceeds(*runner, Options(policy), name, context);
    EXPECT_EQ(Emptied(*runner, reason), StepsOf(context));
    EXPECT_THAT(context.open, testing::Each(0)) << name;
    EXPECT_THAT(context.log, HasSubstr("policy " + name + ": the caches of mps are emptied after each step"));
  }
}

TEST_F(MpsJobTest, PastTheThresholdASealedLadderIsWarmedAgainAndNoBitChanges) {
  Recorder undisturbed;
  const auto calm = Open();
  ExpectSucceeds(*calm, Options(), "calm", undisturbed);

  fake_.Reset();
  fake_.SetDriver(int64_t{15} << 30, 0);  // of 16 GiB, so the first step passes the threshold
  const auto runner = Open();
  GraphRecorder context;
  ExpectSucceeds(*runner, Options(), "job", context);
  EXPECT_EQ(Emptied(*runner, EmptyReason::kThreshold), 1) << "emptying does not bring it down";
  const auto& train = context.cache.of(Mode::kTrain);
  EXPECT_EQ(train.captures_by_cause.of(Cause::kDeviceEmptied), train.entries);
  EXPECT_EQ(train.frozen_captures, 0);
  EXPECT_EQ(train.misses, 0);
  EXPECT_THAT(context.log, HasSubstr("the device's driver holds"));
  EXPECT_EQ(context.sealed.back(), context.sealed.front());
  EXPECT_EQ(LastWeights("job"), LastWeights("calm"));
}

TEST_F(MpsJobTest, AResumedJobIsSealedAgainAndBitEqual) {
  const auto runner = Open();
  GraphRecorder whole;
  ExpectSucceeds(*runner, Options(), "whole", whole);
  GraphRecorder first, second;
  first.stop = [](const Progress& p) { return p.step >= 13 ? StopRequest::kDrain : StopRequest::kNone; };
  const auto stopped = Run(*runner, Options(), Graphs(), "parts", first);
  ASSERT_TRUE(stopped.ok()) << stopped.status();
  ASSERT_EQ(stopped->end, RunEnd::kDrained);
  ExpectSucceeds(*runner, Options(), "parts", second);
  EXPECT_EQ(LastWeights("parts"), LastWeights("whole"));
  EXPECT_EQ(second.sealed.back(), whole.sealed.back());
}

TEST_F(MpsJobTest, AClearEmptiesTheDeviceToo) {
  const auto runner = Open();
  GraphRecorder context;
  context.commands = {{.sequence = 1, .kind = graphcache::CommandKind::kClear}};
  context.commands[0].step = 5;
  ExpectSucceeds(*runner, Options(Policy::kAlways), "job", context);
  EXPECT_EQ(Emptied(*runner, EmptyReason::kCommand), 1);
  EXPECT_LT(*std::ranges::min_element(context.open.begin() + 6, context.open.end()), context.open[5]);
}

TEST_F(MpsJobTest, AnotherThreadsJobIsRefused) {
  const auto runner = Open();
  Recorder context;
  ExpectSucceeds(*runner, Options(), "job", context);
  std::thread([&] {
    const device::MpsStandIn within;
    Recorder other;
    const auto outcome = Run(*runner, Options(), Graphs(), "other", other);
    EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("another thread"));
  }).join();
  EXPECT_THAT(fake_.violations(), IsEmpty());
}

TEST_F(MpsJobTest, ACheckpointOfTheCpuIsRefusedInOneLine) {
  Recorder first, second;
  first.stop = [](const Progress& p) { return p.step >= 5 ? StopRequest::kDrain : StopRequest::kNone; };
  ASSERT_TRUE(Run(*Open(DeviceKind::kCpu), Options(), Graphs(), "job", first).ok());
  const auto outcome = Run(*Open(), Options(), Graphs(), "job", second);
  EXPECT_THAT(std::string(outcome.status().message()), HasSubstr("the checkpoint is of another device than mps"));
}

absl::StatusOr<SelfTestReport> SelfTestOf(const data::OpenedDataset& dataset) {
  return RunSelfTest({.device = DeviceKind::kMps, .threads = 2, .steps = 60}, dataset, [](std::string_view) {});
}

TEST_F(MpsJobTest, TheSelfTestPasses) {
  const auto report = SelfTestOf(Graphs());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->failures, IsEmpty());
  EXPECT_THAT(fake_.violations(), IsEmpty());
  ASSERT_EQ(report->arms.size(), 5u);
  EXPECT_EQ(report->arms[0].sealed, report->arms[0].end);
  EXPECT_EQ(report->arms[0].compared, 60);
  EXPECT_GT(report->arms[1].end, report->arms[1].sealed);
  EXPECT_EQ(report->arms[3].end, 0) << "under never nothing is left";
  const std::string table = Show(*report);
  EXPECT_THAT(table, HasSubstr("entries: compiled graphs that mps keeps"));
  EXPECT_THAT(table, HasSubstr("self-test of mps: passed"));
}

TEST_F(MpsJobTest, TheSelfTestFailsWhereASealedJobGrows) {
  fake_.SetLeak(true);
  const auto report = SelfTestOf(Graphs());
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_FALSE(report->failures.empty());
  EXPECT_THAT(report->failures[0], HasSubstr("freeze: entries(sealed) = "));
  EXPECT_THAT(Show(*report), HasSubstr("self-test of mps: failed"));
}

TEST_F(MpsJobTest, TheSelfTestFailsWhereEntriesCannotBeCounted) {
  fake_.SetKeptGraphs(true);
  const auto report = SelfTestOf(Graphs());
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_FALSE(report->failures.empty());
  EXPECT_THAT(report->failures[0], HasSubstr("entries cannot be counted"));
}

TEST_F(MpsJobTest, TheSelfTestFailsWhereAStepIsNotTheCpus) {
  fake_.SetFault(true);
  const auto report = SelfTestOf(Graphs());
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_THAT(report->failures, testing::Contains(HasSubstr("gradients differ from the CPU's by")));
}

}  // namespace
}  // namespace permafrost::train
