// Tests steps of one executable for all shapes, over every model and kind of batch: they equal eager steps bit for
// bit.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "device/backend.h"
#include "device/cpu/cpu_backend.h"
#include "device/cpu/storage.h"
#include "nn/ops/lowering.h"
#include "recorder.h"
#include "step_cases.h"
#include "temp_dir.h"
#include "train/loop/step_engine.h"
#include "wrapped_task.h"

namespace permafrost::train {
namespace {

using spec::Policy;
using spec::PolicyOptions;
using spec::Shapes;
using testing::HasSubstr;

// A model and its optimizer, as in a run.
struct StepRig {
  StepRig(const spec::TrainOptions& train_options, const data::OpenedDataset& dataset, PolicyOptions policy)
      : options(With(train_options, policy)),
        task(*Task::Create(options, dataset, at::kCPU, 2, [] { return true; })),
        optimizer(options.optimizer, task->tensors().parameters()),
        engine(options, *task, optimizer, *backend, context) {}
  static spec::TrainOptions With(spec::TrainOptions options, PolicyOptions policy) {
    options.graph_cache = policy;
    options.graph_cache.audit_every = 0;
    return options;
  }
  LossOptions Loss() const { return LossOf(options, at::kCPU); }
  // Runs one eager step at the shape at which a dynamic executable would run the batch.
  void TrainEagerly(HostBatch& batch, int64_t step) {
    const auto inputs = batch.PadDynamic(step);
    ASSERT_TRUE(inputs.ok()) << inputs.status();
    TrainProgram(*task, optimizer, Loss(), engine.losses(), [](int) {}).run(**inputs);
  }
  at::Tensor EvaluateEagerly(HostBatch& batch, int64_t step) {
    const auto inputs = batch.PadDynamic(step);
    EXPECT_TRUE(inputs.ok()) << inputs.status();
    return EvalProgram(*task, Loss(), engine.eval_losses(), engine.eval_errors()).run(**inputs).at(0);
  }
  std::vector<nn::NamedTensor> State() {
    std::vector<nn::NamedTensor> all = task->tensors().All();
    for (const auto* more : {&optimizer.state(), &engine.losses().tensors(), &engine.eval_losses().tensors()}) {
      all.insert(all.end(), more->begin(), more->end());
    }
    return all;
  }
  const graphcache::ModeStats& of(Mode mode) const { return engine.cache().of(mode); }

  const spec::TrainOptions options;
  const std::unique_ptr<Task> task;
  Recorder context;
  nn::Optimizer optimizer;
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine;
  PhaseSeconds seconds;
};

class DynamicStepTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::InstallStorageAllocator(); }
  void SetUp() override { device::UseThreads(2); }
  void ExpectEagerSteps(const StepCase& c);
  data::OpenedDataset Open(const CaseData& data) { return Write(data, dir_.path() / std::to_string(++folders_)); }

  TempDir dir_;
  int folders_ = 0;
};

void ExpectSameState(StepRig& eager, StepRig& dynamic, const std::string& where) {
  const auto a = eager.State(), b = dynamic.State();
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(at::equal(a[i].value, b[i].value)) << where << ": " << a[i].name;
  }
}

// Expects equal bits from each step and evaluation of the job, run by one dynamic executable and eagerly.
void DynamicStepTest::ExpectEagerSteps(const StepCase& c) {
  const data::OpenedDataset dataset = Open(c.data);
  StepRig eager(c.options, dataset, {.policy = Policy::kNever});
  StepRig dynamic(c.options, dataset, {.policy = Policy::kFreeze});
  std::set<BatchShape> shapes;
  int64_t step = 0, after_freeze = 0;
  for (int64_t epoch = 0; epoch < c.options.epochs; ++epoch) {
    const auto batches = eager.task->TrainBatches(epoch, 0), same = dynamic.task->TrainBatches(epoch, 0);
    for (;; ++step) {
      const auto a = batches->Next(), b = same->Next();
      ASSERT_TRUE(a.ok() && b.ok()) << c.why << a.status() << b.status();
      if (*a == nullptr) break;
      shapes.insert((*a)->dynamic_shape());
      for (StepRig* rig : {&eager, &dynamic}) {
        rig->optimizer.SetEndsGroup((step + 1) % c.options.optimizer.accumulate_steps == 0);
      }
      eager.TrainEagerly(**a, step);
      const StorageUse before = device::ReadStorageUse();
      ASSERT_EQ(dynamic.engine.Train(**b, step, dynamic.seconds), absl::OkStatus()) << c.why;
      if (step > 1) {
        EXPECT_EQ(device::ReadStorageUse().allocations, before.allocations) << c.why << ", step " << step;
        EXPECT_EQ(device::ReadStorageUse().bytes, before.bytes) << c.why << ", step " << step;
      }
      ExpectSameState(eager, dynamic, c.why + ", step " + std::to_string(step));
      if (step == 0) after_freeze = dynamic.engine.cache().snapshot().shared_bytes;
      if (HasFailure()) return;
    }
    for (const data::Split split : {data::Split::kValid, data::Split::kTest}) {
      if (!c.evaluates_by_steps()) break;
      const auto one = eager.task->EvalBatches(split), other = dynamic.task->EvalBatches(split);
      for (;;) {
        const auto a = one->Next(), b = other->Next();
        ASSERT_TRUE(a.ok() && b.ok()) << c.why;
        if (*a == nullptr) break;
        const at::Tensor want = eager.EvaluateEagerly(**a, step);
        const auto got = dynamic.engine.Evaluate(**b, step);
        ASSERT_TRUE(got.ok()) << c.why << got.status();
        EXPECT_TRUE(at::equal(want, *got)) << c.why;
        EXPECT_FALSE(want.isnan().any().item<bool>()) << c.why;
      }
    }
    ExpectSameState(eager, dynamic, c.why + ", after an evaluation");
  }
  EXPECT_EQ(shapes.size() == 1, c.one_shape) << c.why;
  const graphcache::Snapshot cache = dynamic.engine.cache().snapshot();
  EXPECT_TRUE(cache.frozen) << c.why;
  EXPECT_EQ(cache.shared_bytes, after_freeze) << c.why << ": the arena";
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    if (mode == Mode::kEval && !c.evaluates_by_steps()) continue;
    const graphcache::ModeStats& stats = cache.of(mode);
    EXPECT_EQ(stats.dynamic, !c.one_shape) << c.why << "\n" << dynamic.context.log;
    EXPECT_EQ(stats.entries, 1) << c.why;
    EXPECT_EQ(stats.captures, 1) << c.why;
    EXPECT_EQ(stats.graph_breaks + stats.eager_steps + stats.oversize_steps + stats.padded_hits, 0) << c.why;
  }
  EXPECT_EQ(cache.of(Mode::kTrain).hits, step) << c.why;
  EXPECT_EQ(cache.of(Mode::kTrain).misses, 0) << c.why;
  EXPECT_EQ(cache.freeze_step, 0) << c.why;
}

TEST_F(DynamicStepTest, EveryStepIsBitEqualToTheEagerOneAndTheMemoryStays) {
  for (const StepCase& c : StepCases()) {
    ExpectEagerSteps(c);
    if (HasFailure()) return;
  }
}

TEST_F(DynamicStepTest, SoIsEveryStepOfBfloat16) {
  if (!nn::CanRoundFactors()) GTEST_SKIP() << "this processor has no AVX512-BF16";
  for (const StepCase& c : Bfloat16Cases()) {
    ExpectEagerSteps(c);
    if (HasFailure()) return;
  }
}

// A dynamic executable leaves the same bits as one of exact shapes.
TEST_F(DynamicStepTest, ExactAndDynamicExecutablesLeaveEqualBits) {
  const data::OpenedDataset dataset = Open(100);
  StepRig exact(GraphJob(), dataset, {.policy = Policy::kAlways});
  StepRig dynamic(GraphJob(), dataset, {.policy = Policy::kAlways, .shapes = Shapes::kDynamic});
  const auto batches = exact.task->TrainBatches(0, 0), same = dynamic.task->TrainBatches(0, 0);
  for (int64_t step = 0;; ++step) {
    const auto a = batches->Next(), b = same->Next();
    ASSERT_TRUE(a.ok() && b.ok());
    if (*a == nullptr) break;
    ASSERT_TRUE(exact.engine.Train(**a, step, exact.seconds).ok());
    ASSERT_TRUE(dynamic.engine.Train(**b, step, dynamic.seconds).ok());
    ExpectSameState(exact, dynamic, "step " + std::to_string(step));
  }
  EXPECT_GT(exact.of(Mode::kTrain).entries, 5);
  EXPECT_EQ(dynamic.of(Mode::kTrain).entries, 1);
}

// A batch that was prepared for a rung can be padded to its own sizes, and the other way round.
TEST_F(DynamicStepTest, SampledBatchesGoFromOnePaddingToTheOther) {
  const data::OpenedDataset dataset = Open(TinyGraphOptions{.sparse = true});
  StepRig rungs(NodeJob(spec::Architecture::kSage), dataset, {.policy = Policy::kFreeze, .shapes = Shapes::kExact});
  StepRig own(NodeJob(spec::Architecture::kSage), dataset, {.policy = Policy::kFreeze});
  const auto at_rungs = rungs.task->TrainBatches(0, 0), at_own = own.task->TrainBatches(0, 0);
  for (int64_t step = 0;; ++step) {
    const auto a = at_rungs->Next(), b = at_own->Next();
    ASSERT_TRUE(a.ok() && b.ok());
    if (*a == nullptr) break;
    EXPECT_EQ((*a)->padded(), (*a)->least_padded());
    EXPECT_EQ((*b)->padded(), (*b)->dynamic_shape());
    EXPECT_NE((*a)->padded(), (*b)->padded());
    const auto same = [&](const auto& x, const auto& y) {
      ASSERT_TRUE(x.ok() && y.ok());
      ASSERT_EQ((*x)->tensors.size(), (*y)->tensors.size());
      for (size_t i = 0; i < (*x)->tensors.size(); ++i) {
        const at::Tensor &one = (*x)->tensors[i], &other = (*y)->tensors[i];
        ASSERT_EQ(one.defined(), other.defined());
        if (one.defined()) {
          EXPECT_TRUE(one.allclose(other, 0, 0, /*equal_nan=*/true)) << i;
        }
      }
    };
    same((*a)->PadDynamic(step), (*b)->PadDynamic(step));
    same((*a)->PadTo((*a)->least_padded(), step), (*b)->PadTo((*b)->least_padded(), step));
  }
}

// A task whose training step uses an integer that no size of its inputs determines.
class Resists final : public WrappedTask {
 public:
  using WrappedTask::WrappedTask;
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override {
    Output output = WrappedTask::Forward(inputs, mode);
    if (mode == Mode::kTrain) {
      const int64_t rows = inputs.tensors[0].size(0);
      output.prediction = output.prediction + at::zeros({rows * rows % 7 + 1, 1}).sum();
    }
    return output;
  }
};

TEST_F(DynamicStepTest, AnIntegerThatResistsIsNamedAndThereIsALadderThen) {
  spec::TrainOptions options = GraphJob();
  options.graph_cache = {.policy = Policy::kFreeze, .rungs = 3};
  const data::OpenedDataset dataset = Open(100);
  Resists task(*Task::Create(options, dataset, at::kCPU, 2, [] { return true; }));
  Recorder context;
  nn::Optimizer optimizer(options.optimizer, task.tensors().parameters());
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine(options, task, optimizer, *backend, context);
  PhaseSeconds seconds;
  const auto batches = task.TrainBatches(0, 0);
  int64_t step = 0;
  for (;; ++step) {
    const auto batch = batches->Next();
    ASSERT_TRUE(batch.ok());
    if (*batch == nullptr) break;
    ASSERT_EQ(engine.Train(**batch, step, seconds), absl::OkStatus());
  }
  const graphcache::Snapshot cache = engine.cache().snapshot();
  EXPECT_THAT(context.log, HasSubstr("no executable serves every shape of the training step, and batches are rounded "
                                     "up to a ladder of 3 shapes: aten::zeros: size[0] is "));
  ASSERT_EQ(cache.graph_breaks.size(), 1U);
  EXPECT_EQ(cache.graph_breaks[0].op, "aten::zeros");
  EXPECT_THAT(cache.graph_breaks[0].why, HasSubstr("does not follow from the sizes of the inputs"));
  EXPECT_EQ(cache.of(Mode::kTrain).graph_breaks, 1);
  EXPECT_FALSE(cache.of(Mode::kTrain).dynamic);
  EXPECT_EQ(cache.of(Mode::kTrain).entries, 3);
  EXPECT_EQ(cache.of(Mode::kTrain).misses, 0) << "the rungs were captured before the first step";
  EXPECT_EQ(cache.of(Mode::kTrain).eager_steps, 0);
  EXPECT_TRUE(cache.of(Mode::kEval).dynamic) << "evaluation does not resist";
  EXPECT_TRUE(cache.frozen);
}

// A task that counts the steps that run rather than replay.
class CountsRuns final : public WrappedTask {
 public:
  using WrappedTask::WrappedTask;
  Output Forward(const graphcache::StepInputs& inputs, Mode mode) override {
    ++runs[static_cast<size_t>(mode)];
    return WrappedTask::Forward(inputs, mode);
  }
  std::array<int64_t, 2> runs{};
};

TEST_F(DynamicStepTest, ALadderIsRecordedOnceAndEachRungRunOnce) {
  spec::TrainOptions options = GraphJob();
  options.graph_cache = {.policy = Policy::kFreeze, .shapes = Shapes::kLadder, .rungs = 4};
  CountsRuns task(*Task::Create(options, Open(100), at::kCPU, 2, [] { return true; }));
  Recorder context;
  nn::Optimizer optimizer(options.optimizer, task.tensors().parameters());
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine(options, task, optimizer, *backend, context);
  while (!engine.cache().ready()) ASSERT_EQ(engine.CaptureNext(0), absl::OkStatus());
  for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
    const int64_t rungs = engine.cache().of(mode).entries;
    EXPECT_GT(rungs, 1);
    EXPECT_EQ(task.runs[static_cast<size_t>(mode)], static_cast<int64_t>(device::kLadderProbes) + rungs);
  }
  EXPECT_THAT(context.log, testing::Not(HasSubstr("recorded for itself")));
}

TEST_F(DynamicStepTest, ALadderOfAStepThatResistsIsRecordedRungByRungAndSaysSo) {
  spec::TrainOptions options = GraphJob();
  options.graph_cache = {.policy = Policy::kFreeze, .shapes = Shapes::kLadder, .rungs = 3};
  Resists task(*Task::Create(options, Open(100), at::kCPU, 2, [] { return true; }));
  Recorder context;
  nn::Optimizer optimizer(options.optimizer, task.tensors().parameters());
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine(options, task, optimizer, *backend, context);
  while (!engine.cache().ready()) ASSERT_EQ(engine.CaptureNext(0), absl::OkStatus());
  EXPECT_EQ(engine.cache().of(Mode::kTrain).entries, 3);
  EXPECT_EQ(engine.cache().of(Mode::kTrain).graph_breaks, 0);
  EXPECT_THAT(context.log, HasSubstr("each rung of the ladder is recorded for itself, which takes longer: "));
}

}  // namespace
}  // namespace permafrost::train
