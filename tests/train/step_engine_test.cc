// Tests that a step through the graph cache equals the step itself: bit for bit if captured at its exact shape, and
// within float tolerance if padded.
#include "train/loop/step_engine.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "data/sampling/epoch_order.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "norm_of.h"
#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/tasks/graph_set_task.h"

namespace permafrost::train {
namespace {
using spec::OnMiss;
using spec::Policy;
using spec::Shapes;

// A model with its optimizer and engine, as in a run.
struct EngineRig {
  EngineRig(const spec::TrainOptions& train_options, const std::shared_ptr<const data::GraphSet>& set,
            at::ScalarType type = at::kFloat)
      : options(train_options),
        task(*GraphSetTask::Create(options, set, at::kCPU, [] { return true; })),
        batcher(task->batcher()),
        optimizer(options.optimizer, Convert(*task, type)),
        engine(options, *task, optimizer, *backend, context) {}
  static const std::vector<nn::NamedTensor>& Convert(Task& task, at::ScalarType type) {
    for (const nn::NamedTensor& t : task.tensors().All())
      if (t.value.is_floating_point()) at::Tensor(t.value).set_data(t.value.detach().to(type));
    return task.tensors().parameters();
  }
  // Trains on `graphs` after `step` earlier steps.
  absl::Status Train(std::span<const uint32_t> graphs, int64_t step) {
    absl::Status assembled = batcher.Assemble(graphs, data::Batcher::LeastPadded(batcher.ShapeOf(graphs)), batch);
    if (!assembled.ok()) return assembled;
    return engine.Train(view, step, seconds);
  }
  at::Tensor Evaluate(std::span<const uint32_t> graphs) {
    EXPECT_TRUE(batcher.Assemble(graphs, data::Batcher::LeastPadded(batcher.ShapeOf(graphs)), batch).ok());
    auto out = engine.Evaluate(view, 0);
    EXPECT_TRUE(out.ok()) << out.status();
    return out->narrow(0, 0, static_cast<int64_t>(graphs.size())).clone();
  }
  // Returns everything that a step changes.
  std::vector<nn::NamedTensor> State() const {
    std::vector<nn::NamedTensor> all = task->tensors().All();
    all.insert(all.end(), optimizer.state().begin(), optimizer.state().end());
    all.insert(all.end(), engine.losses().tensors().begin(), engine.losses().tensors().end());
    return all;
  }

  const spec::TrainOptions options;
  const std::unique_ptr<GraphSetTask> task;
  const data::Batcher& batcher;
  Recorder context;
  nn::Optimizer optimizer;
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine;
  data::PaddedBatch batch;
  GraphSetHostBatch view{batcher, &batch};
  PhaseSeconds seconds;
};

struct Model {
  const char* why;
  spec::TrainOptions options;
};

std::vector<Model> Models() {
  spec::TrainOptions base;
  base.model = {.hidden_channels = 16, .num_layers = 3};
  base.batch_size = 9;
  base.epochs = 6;
  base.seed = 3;
  spec::TrainOptions everything = base;
  everything.model.dropout = 0.3;
  everything.model.pooling = spec::Pooling::kSum;
  everything.optimizer = {
      .algorithm = spec::OptimizerAlgorithm::kAdamW, .learning_rate = 3e-3, .weight_decay = 0.01, .max_grad_norm = 0.1};
  everything.loss = spec::Loss::kMse;
  spec::TrainOptions dropout = base;
  dropout.model.dropout = 0.5;
  return {{"mean pooling, Adam, L1", base},
          {"dropout", dropout},
          {"sum pooling, dropout, AdamW, clipping, MSE", everything}};
}

double RelativeDifference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().to(at::kDouble), y = b.detach().to(at::kDouble);
  return (x - y).norm().item<double>() / std::max(1e-12, y.norm().item<double>());
}

class StepEngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::InstallStorageAllocator(); }
  void SetUp() override {
    device::UseThreads(2);
    set_ = ImportTinyGraphs(dir_.path(), 100);
    batcher_ = *data::Batcher::Create(set_);
    const auto summary = batcher_->summary();
    const auto split = batcher_->split(data::Split::kTrain);
    // The batches are full ones, the last partial one, one of a single graph, and one of graphs with a single node
    // and no edges.
    const data::EpochOrder epochs(split, {.batch_size = 9, .seed = 3});
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      const auto order = epochs.Of(epoch);
      for (int64_t b = 0; b < epochs.batches_per_epoch(); ++b) {
        const auto graphs = epochs.Batch(order, b);
        batches_.emplace_back(graphs.begin(), graphs.end());
      }
    }
    std::vector<uint32_t> without_edges;
    for (const uint32_t g : split)
      if (batcher_->ShapeOf({&g, 1}).edges == 0) without_edges.push_back(g);
    ASSERT_GE(without_edges.size(), 2U);
    batches_.push_back({split[0]});
    batches_.push_back({without_edges[0]});
    batches_.push_back(without_edges);
  }
  static spec::TrainOptions With(spec::TrainOptions options, spec::PolicyOptions policy) {
    options.graph_cache = policy;
    options.graph_cache.audit_every = 0;
    return options;
  }

  TempDir dir_;
  std::shared_ptr<const data::GraphSet> set_;
  std::unique_ptr<data::Batcher> batcher_;
  std::vector<std::vector<uint32_t>> batches_;
};

TEST_F(StepEngineTest, ExactReplaysAreBitEqualToEagerSteps) {
  for (const Model& m : Models()) {
    EngineRig eager(With(m.options, {Policy::kNever}), set_), cached(With(m.options, {Policy::kAlways}), set_);
    int64_t step = 0;
    // The first round captures, and the second replays the executables.
    for (int round = 0; round < 2; ++round) {
      for (const auto& graphs : batches_) {
        ASSERT_TRUE(eager.Train(graphs, step).ok());
        ASSERT_TRUE(cached.Train(graphs, step).ok());
        ++step;
        const auto a = eager.State(), b = cached.State();
        for (size_t i = 0; i < a.size(); ++i)
          ASSERT_TRUE(at::equal(a[i].value, b[i].value)) << m.why << ", step " << step << ": " << a[i].name;
      }
    }
    const graphcache::ModeStats stats = cached.engine.cache().snapshot().of(Mode::kTrain);
    EXPECT_EQ(stats.graph_breaks, 0) << m.why;
    EXPECT_EQ(stats.eager_steps, 0) << m.why;
    EXPECT_GE(stats.hits, std::ssize(batches_)) << m.why;
    const auto valid = batcher_->split(data::Split::kValid).subspan(0, 9);
    EXPECT_TRUE(at::equal(eager.Evaluate(valid), cached.Evaluate(valid))) << m.why;
    EXPECT_TRUE(at::equal(eager.Evaluate(valid), cached.Evaluate(valid))) << m.why;
  }
}

// Each batch is trained on from equal states, so that small differences do not accumulate before the comparison.
TEST_F(StepEngineTest, OnePaddedReplayAgreesWithTheExactStep) {
  for (const Model& m : Models()) {
    EngineRig eager(With(m.options, {Policy::kNever}), set_);
    EngineRig padded(With(m.options, {Policy::kFreeze, 1, OnMiss::kPad, Shapes::kExact}), set_);
    int64_t step = 0;
    for (const auto& graphs : batches_) {
      nn::CopyInto(eager.State(), padded.State());
      eager.engine.losses().Reset();
      padded.engine.losses().Reset();
      ASSERT_TRUE(eager.Train(graphs, step).ok());
      ASSERT_TRUE(padded.Train(graphs, step).ok());
      ++step;
      EXPECT_NEAR(eager.engine.losses().Mean(), padded.engine.losses().Mean(),
                  1e-5 * std::abs(eager.engine.losses().Mean()))
          << m.why << ", step " << step;
      const auto a = eager.State(), b = padded.State();
      const double moment = NormOf(a, "exp_avg.");
      for (size_t i = 0; i < a.size(); ++i) {
        if (a[i].name.starts_with("exp_avg.")) {
          // After the first step, this moment is a tenth of the gradient. The difference is compared with the norm of
          // all moments, because a bias that batch norm cancels has a gradient of rounding error only.
          EXPECT_LE((a[i].value - b[i].value).norm().item<double>(), 1e-6 * moment)
              << m.why << ", step " << step << ": " << a[i].name;
        } else if (a[i].name.find("running_") != std::string::npos) {
          EXPECT_LT(RelativeDifference(b[i].value, a[i].value), 1e-5)
              << m.why << ", step " << step << ": " << a[i].name;
        }
      }
    }
    const graphcache::ModeStats stats = padded.engine.cache().snapshot().of(Mode::kTrain);
    EXPECT_GE(stats.padded_hits, std::ssize(batches_) - 3) << m.why;
    EXPECT_EQ(stats.eager_steps, 0) << m.why;
    const auto valid = batcher_->split(data::Split::kValid).subspan(0, 9);
    nn::CopyInto(eager.State(), padded.State());
    EXPECT_TRUE(at::allclose(eager.Evaluate(valid), padded.Evaluate(valid), 1e-5, 1e-6)) << m.why;
  }
}

TEST_F(StepEngineTest, FiftyPaddedReplaysAgreeInFloat64) {
  for (const Model& m : Models()) {
    EngineRig eager(With(m.options, {Policy::kNever}), set_, at::kDouble);
    EngineRig padded(With(m.options, {Policy::kFreeze, 1, OnMiss::kPad, Shapes::kExact}), set_, at::kDouble);
    for (int64_t step = 0; step < 50; ++step) {
      ASSERT_TRUE(eager.Train(batches_[static_cast<size_t>(step)], step).ok());
      ASSERT_TRUE(padded.Train(batches_[static_cast<size_t>(step)], step).ok());
    }
    EXPECT_GE(padded.engine.cache().snapshot().of(Mode::kTrain).padded_hits, 45) << m.why;
    const auto a = eager.State(), b = padded.State();
    for (size_t i = 0; i < a.size(); ++i) {
      // Moments are compared with the norm of all moments of their kind, as above.
      const std::string kind = a[i].name.substr(0, a[i].name.find('.') + 1);
      const bool moment = kind.starts_with("exp_avg");
      const double scale = moment ? NormOf(a, kind) : a[i].value.to(at::kDouble).norm().item<double>();
      EXPECT_LE((a[i].value - b[i].value).to(at::kDouble).norm().item<double>(), 1e-9 * scale)
          << m.why << ": " << a[i].name;
    }
  }
}

TEST_F(StepEngineTest, AReplayAllocatesNoStorage) {
  for (const Model& m : Models()) {
    EngineRig rig(With(m.options, {Policy::kFreeze, 3, OnMiss::kPad, Shapes::kExact}), set_);
    const auto valid = batcher_->split(data::Split::kValid).subspan(0, 9);
    int64_t step = 0;
    for (const auto& graphs : batches_) ASSERT_TRUE(rig.Train(graphs, step++).ok());
    at::Tensor prediction = rig.Evaluate(valid);
    ASSERT_TRUE(rig.engine.cache().snapshot().frozen);
    const StorageUse before = device::ReadStorageUse();
    for (const auto& graphs : batches_) ASSERT_TRUE(rig.Train(graphs, step++).ok());
    ASSERT_TRUE(rig.batcher.Assemble(valid, data::Batcher::LeastPadded(batcher_->ShapeOf(valid)), rig.batch).ok());
    ASSERT_TRUE(rig.engine.Evaluate(rig.view, step).ok());
    EXPECT_EQ(device::ReadStorageUse().allocations, before.allocations) << m.why;
    EXPECT_EQ(device::ReadStorageUse().bytes, before.bytes) << m.why;
  }
}

TEST_F(StepEngineTest, FreezingDoesNotChangeTheState) {
  const Model m = Models()[2];
  EngineRig rig(With(m.options, {Policy::kFreeze, 1000, OnMiss::kPad, Shapes::kExact}), set_);
  for (int64_t step = 0; step < 4; ++step) ASSERT_TRUE(rig.Train(batches_[static_cast<size_t>(step)], step).ok());
  const auto before = nn::Clone(rig.State());
  ASSERT_TRUE(rig.engine.cache().Apply({.sequence = 1, .kind = graphcache::CommandKind::kFreeze}, 4).ok());
  EXPECT_TRUE(rig.engine.cache().snapshot().frozen);
  const auto after = rig.State();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(at::equal(before[i].value, after[i].value)) << before[i].name;
}

TEST_F(StepEngineTest, ALearningRateThatChangesCapturesNothing) {
  const Model m = Models()[0];
  EngineRig eager(With(m.options, {Policy::kNever}), set_), cached(With(m.options, {Policy::kAlways}), set_);
  for (int64_t step = 0; step < 10; ++step) {
    const double rate = 1e-3 * static_cast<double>(step + 1);
    eager.optimizer.SetLearningRate(rate);
    cached.optimizer.SetLearningRate(rate);
    ASSERT_TRUE(eager.Train(batches_[0], step).ok());
    ASSERT_TRUE(cached.Train(batches_[0], step).ok());
    const auto a = eager.State(), b = cached.State();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(at::equal(a[i].value, b[i].value)) << a[i].name;
  }
  EXPECT_EQ(cached.engine.cache().snapshot().of(Mode::kTrain).captures, 1);
}

}  // namespace
}  // namespace permafrost::train
