// Tests audited replays of whole training steps: they change no bit of a run, and detect an operator that goes wrong.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "faulty_operator.h"
#include "recorder.h"
#include "runner_fixture.h"
#include "temp_dir.h"
#include "tiny_graph.h"
#include "tiny_graphs.h"
#include "train/loop/step_engine.h"
#include "wrapped_task.h"

namespace permafrost::train {
namespace {

using spec::Policy;
using spec::PolicyOptions;
using spec::Shapes;
using testing::HasSubstr;

// A task whose labels go through an operator of this test that can go wrong.
class FaultyTask final : public WrappedTask {
 public:
  using WrappedTask::WrappedTask;
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override {
    Output output = WrappedTask::Forward(inputs, mode);
    output.labels = output.labels.is_floating_point() ? CopyOf(output.labels) : output.labels;
    return output;
  }
};

struct AuditRig {
  AuditRig(const spec::TrainOptions& train_options, const data::OpenedDataset& dataset)
      : options(train_options),
        task(*Task::Create(options, dataset, at::kCPU, 2, [] { return true; })),
        optimizer(options.optimizer, task.tensors().parameters()),
        engine(options, task, optimizer, *backend, context) {}
  // Runs one epoch and its evaluation. Calls `before` ahead of each step.
  absl::Status RunEpoch(int64_t epoch, const std::function<void(int64_t step)>& before) {
    const auto stream = task.TrainBatches(epoch, 0);
    for (auto batch = stream->Next();; batch = stream->Next()) {
      PF_RETURN_IF_ERROR(batch.status());
      if (*batch == nullptr) break;
      before(step);
      PF_RETURN_IF_ERROR(engine.Train(**batch, step, seconds));
      ++step;
    }
    const auto valid = task.EvalBatches(data::Split::kValid);
    for (auto batch = valid->Next(); batch.ok() && *batch != nullptr; batch = valid->Next()) {
      PF_RETURN_IF_ERROR(engine.Evaluate(**batch, step).status());
    }
    return absl::OkStatus();
  }
  std::vector<nn::NamedTensor> State() {
    std::vector<nn::NamedTensor> all = task.tensors().All();
    for (const auto* more : {&optimizer.state(), &engine.losses().tensors(), &engine.eval_losses().tensors()}) {
      all.insert(all.end(), more->begin(), more->end());
    }
    return all;
  }

  const spec::TrainOptions options;
  FaultyTask task;
  Recorder context;
  nn::Optimizer optimizer;
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine;
  PhaseSeconds seconds;
  int64_t step = 0;
};

struct AuditCase {
  std::string why;
  bool blocks = false;  // sampled blocks of one large graph, or else batches of small graphs
  Shapes shapes = Shapes::kDynamic;
};
const std::vector<AuditCase> kAuditCases{{"small graphs, dynamic", false, Shapes::kDynamic},
                                         {"small graphs, exact", false, Shapes::kExact},
                                         {"small graphs, a ladder", false, Shapes::kLadder},
                                         {"sampled blocks, dynamic", true, Shapes::kDynamic},
                                         {"sampled blocks, exact", true, Shapes::kExact}};

class TrainAuditTest : public testing::Test {
 protected:
  static constexpr int64_t kEpochs = 3;

  static void SetUpTestSuite() { device::InstallStorageAllocator(); }
  void SetUp() override {
    device::UseThreads(2);
    operator_fault = OperatorFault::kNone;
    set_ = ImportTinyGraphs(dir_.path() / "set", 100);
    graph_ = WriteTinyGraph(dir_.path() / "graph");
  }
  void TearDown() override { operator_fault = OperatorFault::kNone; }

  static spec::TrainOptions Options(const AuditCase& c, int64_t audit_every) {
    spec::TrainOptions options;
    options.model = {.hidden_channels = 16, .num_layers = 2, .dropout = 0.2};
    options.batch_size = 9;
    if (c.blocks) {
      options.model.architecture = spec::Architecture::kSage;
      options.model.level = spec::ModelLevel::kNode;
      options.model.norm = spec::Norm::kNone;
      options.loss = spec::Loss::kL1;  // with classes, an error of 0.5 would not show
      options.nodes.fan_outs = {4, 3};
      options.batch_size = 50;
    }
    options.epochs = kEpochs;
    options.seed = 3;
    options.graph_cache = {.policy = Policy::kFreeze, .shapes = c.shapes, .audit_every = audit_every};
    return options;
  }
  std::unique_ptr<AuditRig> Rig(const AuditCase& c, const spec::TrainOptions& options) const {
    const data::OpenedDataset dataset = c.blocks ? data::OpenedDataset(graph_) : data::OpenedDataset(set_);
    return std::make_unique<AuditRig>(options, dataset);
  }
  // Runs all epochs. Calls `before` ahead of each step.
  static void RunAll(AuditRig& rig, const std::string& why, const std::function<void(int64_t step)>& before) {
    for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
      const absl::Status run = rig.RunEpoch(epoch, before);
      ASSERT_TRUE(run.ok()) << why << ": " << run;
    }
  }
  static void ExpectSame(AuditRig& one, AuditRig& other, const std::string& why) {
    const auto a = one.State(), b = other.State();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].value, b[i].value)) << why << ": " << a[i].name;
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> set_;
  std::shared_ptr<const data::Graph> graph_;
};

TEST_F(TrainAuditTest, AuditsChangeNoBitOfARun) {
  for (const AuditCase& c : kAuditCases) {
    const auto plain = Rig(c, Options(c, 0));
    RunAll(*plain, c.why, [](int64_t) {});
    for (const int64_t every : {1, 7}) {
      const std::string why = c.why + ", audited every " + std::to_string(every);
      const auto audited = Rig(c, Options(c, every));
      RunAll(*audited, why, [](int64_t) {});
      ExpectSame(*audited, *plain, why);
      const graphcache::Snapshot cache = audited->engine.cache().snapshot();
      const int64_t second = every == 1 ? 0 : 1;  // the second step is audited for any `every`
      EXPECT_EQ(cache.of(Mode::kTrain).audits, second + (audited->step - 1) / every)
          << why << ": each of them is a replay";
      int64_t evaluations = 0, last = 0;
      for (int64_t epoch = 1; epoch <= kEpochs; ++epoch) {
        const int64_t step = audited->step / kEpochs * epoch;
        if (!graphcache::IsAuditDue(Mode::kEval, every, step, last)) continue;
        ++evaluations;
        last = step;
      }
      EXPECT_EQ(cache.of(Mode::kEval).audits, evaluations) << why;
      EXPECT_TRUE(cache.audit_failures.empty()) << why << ": " << cache.audit_failures.front().why;
      EXPECT_EQ(cache.profiles.list().size(), 2u) << why;
      EXPECT_FALSE(cache.profiles.list().front().operators.empty()) << why;
    }
    EXPECT_EQ(plain->engine.cache().of(Mode::kTrain).audits, 0) << c.why;
  }
}

TEST_F(TrainAuditTest, AFaultInOneOperatorOfALiveExecutableIsCaughtAndCostsNoBit) {
  constexpr int64_t kFaultyStep = 6;
  for (const AuditCase& c : kAuditCases) {
    // With exact shapes, this step may still be captured. Its capture would find the fault before an audit does.
    if (!c.blocks && c.shapes == Shapes::kExact) continue;
    const auto plain = Rig(c, Options(c, 0)), faulty = Rig(c, Options(c, 3));
    RunAll(*plain, c.why, [](int64_t) {});
    RunAll(*faulty, c.why, [](int64_t step) {
      operator_fault = step == kFaultyStep ? OperatorFault::kInReplays : OperatorFault::kNone;
    });
    ExpectSame(*faulty, *plain, c.why + ": the eager result of the step was kept");
    const graphcache::Snapshot cache = faulty->engine.cache().snapshot();
    ASSERT_EQ(cache.audit_failures.size(), 1u) << c.why;
    EXPECT_EQ(cache.audit_failures[0].op, "faulty::copy") << c.why << ": " << cache.audit_failures[0].why;
    EXPECT_EQ(cache.audit_failures[0].step, kFaultyStep) << c.why;
    EXPECT_EQ(cache.audit_failures[0].mode, Mode::kTrain) << c.why;
    EXPECT_EQ(cache.of(Mode::kTrain).audit_failures, 1) << c.why;
    EXPECT_THAT(faulty->context.log, HasSubstr("faulty::copy: its result 0, of type Float")) << c.why;
    if (c.shapes == Shapes::kDynamic) {
      EXPECT_EQ(cache.of(Mode::kTrain).eager_steps, faulty->step - kFaultyStep - 1)
          << c.why << ": it serves no step any more";
      EXPECT_EQ(cache.of(Mode::kEval).eager_steps, 0) << c.why;
    }
  }
}

TEST_F(TrainAuditTest, AStrictJobFailsAtTheFaultAndNamesTheOperator) {
  for (const AuditCase& c : kAuditCases) {
    if (!c.blocks && c.shapes == Shapes::kExact) continue;  // same reason as above
    spec::TrainOptions options = Options(c, 3);
    options.graph_cache.strict = true;
    const auto rig = Rig(c, options);
    const absl::Status run = rig->RunEpoch(
        0, [](int64_t step) { operator_fault = step == 3 ? OperatorFault::kInReplays : OperatorFault::kNone; });
    EXPECT_TRUE(absl::IsFailedPrecondition(run)) << c.why << ": " << run;
    EXPECT_EQ(GetReason(run).reason, "GRAPH_CACHE_AUDIT_FAILED") << c.why;
    EXPECT_EQ(GetReason(run).metadata.at("op"), "faulty::copy") << c.why;
    EXPECT_THAT(std::string(run.message()), HasSubstr("faulty::copy")) << c.why << ": what the job's error says";
    EXPECT_EQ(rig->step, 3) << c.why << ": the step before it was the last";
  }
}

class AuditedRunTest : public RunnerTest {};

TEST_F(AuditedRunTest, AResumedRunAuditsTheSameStepsAndEndsWithTheSameBits) {
  spec::TrainOptions plain = Options(), audited = Options();
  plain.graph_cache.audit_every = 0;
  audited.graph_cache.audit_every = 4;
  Recorder without, whole;
  ASSERT_TRUE(Run(plain, "plain", without).ok());
  ASSERT_TRUE(Run(audited, "whole", whole).ok());
  EXPECT_EQ(Artifact("whole", kLastWeightsFile), Artifact("plain", kLastWeightsFile));
  EXPECT_EQ(whole.cache.of(Mode::kTrain).audits, 9) << "after 1, 4, 8, ... 32 of 36 steps";
  EXPECT_EQ(whole.cache.of(Mode::kEval).audits, 4);
  for (const int64_t stop : {3, 8, 21}) {
    const std::string job = "stopped-" + std::to_string(stop);
    Recorder first, second;
    first.stop = [stop](const Progress& p) { return p.step >= stop ? StopRequest::kDrain : StopRequest::kNone; };
    ASSERT_TRUE(Run(audited, job, first).ok());
    ASSERT_TRUE(Run(audited, job, second).ok());
    EXPECT_EQ(Artifact(job, kLastWeightsFile), Artifact("plain", kLastWeightsFile)) << stop;
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      EXPECT_EQ(second.cache.of(mode).audits, whole.cache.of(mode).audits) << stop;
      EXPECT_EQ(second.cache.of(mode).audit_failures, 0) << stop;
    }
  }
}

}  // namespace
}  // namespace permafrost::train
