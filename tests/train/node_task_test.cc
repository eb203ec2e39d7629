// Tests training on the nodes of one large graph, step by step.
#include "train/tasks/node_task.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "device/backend.h"
#include "device/cpu/storage.h"
#include "nn/models/model.h"
#include "node_cases.h"
#include "norm_of.h"
#include "recorder.h"
#include "train/loop/step_engine.h"
#include "train/tasks/layer_wise.h"
#include "train/tasks/node_model_for.h"

namespace permafrost::train {
namespace {
using spec::Policy;

constexpr spec::PolicyOptions kRungs{.policy = Policy::kFreeze, .shapes = spec::Shapes::kExact};

// A model with its optimizer and engine, as in a run.
struct NodeRig {
  NodeRig(spec::TrainOptions train_options, const std::shared_ptr<const data::Graph>& graph, spec::PolicyOptions policy)
      : options(With(std::move(train_options), policy)),
        task(*Task::Create(options, graph, at::kCPU, 2, [] { return true; })),
        optimizer(options.optimizer, task->tensors().parameters()),
        engine(options, *task, optimizer, *backend, context) {}
  static spec::TrainOptions With(spec::TrainOptions options, spec::PolicyOptions policy) {
    options.graph_cache = policy;
    return options;
  }
  std::vector<nn::NamedTensor> State() const {
    std::vector<nn::NamedTensor> all = task->tensors().All();
    all.insert(all.end(), optimizer.state().begin(), optimizer.state().end());
    all.insert(all.end(), engine.losses().tensors().begin(), engine.losses().tensors().end());
    return all;
  }

  const spec::TrainOptions options;
  const std::unique_ptr<Task> task;
  Recorder context;
  nn::Optimizer optimizer;
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine;
  PhaseSeconds seconds;
};

TEST_F(NodeTaskTest, ReplaysAreBitEqualToEagerStepsAndNothingIsCompiledAfterTheFreeze) {
  for (const NodeCase& c : NodeCases()) {
    const auto graph = Graph(c.graph);
    NodeRig eager(c.options, graph, {Policy::kNever}), cached(c.options, graph, kRungs);
    int64_t step = 0;
    for (int64_t epoch = 0; epoch < c.options.epochs; ++epoch) {
      const auto batches = eager.task->TrainBatches(epoch, 0), same = cached.task->TrainBatches(epoch, 0);
      for (;; ++step) {
        const auto a = batches->Next(), b = same->Next();
        ASSERT_TRUE(a.ok() && b.ok()) << c.why << a.status() << b.status();
        if (*a == nullptr) break;
        ASSERT_TRUE(eager.engine.Train(**a, step, eager.seconds).ok()) << c.why;
        ASSERT_TRUE(cached.engine.Train(**b, step, cached.seconds).ok()) << c.why;
        const auto x = eager.State(), y = cached.State();
        for (size_t i = 0; i < x.size(); ++i)
          ASSERT_TRUE(at::equal(x[i].value, y[i].value)) << c.why << ", step " << step << ": " << x[i].name;
      }
      EXPECT_TRUE(cached.engine.cache().snapshot().frozen) << c.why << ": after the first step";
    }
    const graphcache::ModeStats stats = cached.engine.cache().snapshot().of(Mode::kTrain);
    EXPECT_EQ(stats.graph_breaks, 0) << c.why << "\n" << cached.context.log;
    EXPECT_EQ(stats.eager_steps, 0) << c.why;
    EXPECT_EQ(stats.rejected_inserts, 0) << c.why;
    EXPECT_EQ(stats.hits + stats.padded_hits + 1, step) << c.why;
    EXPECT_EQ(stats.captures, std::ssize(cached.task->plan().train_rungs)) << c.why;
  }
}

// Runs one step from equal states, with the same block at its own rung and at the top rung.
TEST_F(NodeTaskTest, PaddingChangesNothing) {
  for (const NodeCase& c : NodeCases()) {
    if (c.options.nodes.fan_outs.empty()) continue;  // a whole graph is never padded
    const auto graph = Graph(c.graph);
    NodeRig least(c.options, graph, {Policy::kNever}), padded(c.options, graph, {Policy::kNever});
    const auto batches = least.task->TrainBatches(0, 0), same = padded.task->TrainBatches(0, 0);
    const BatchShape top = padded.task->plan().train_ceiling;
    int64_t step = 0, farther = 0;
    for (;; ++step) {
      const auto a = batches->Next(), b = same->Next();
      ASSERT_TRUE(a.ok() && b.ok());
      if (*a == nullptr) break;
      if ((*b)->padded() != top) ++farther;
      nn::CopyInto(least.State(), padded.State());
      ASSERT_TRUE(least.engine.Train(**a, step, least.seconds).ok());
      // Bypasses the cache, which would pad the batch to its own rung.
      const auto inputs = (*b)->PadTo(top, step);
      ASSERT_TRUE(inputs.ok()) << c.why << inputs.status();
      const device::StepProgram program = TrainProgram(
          *padded.task, padded.optimizer,
          {.loss = c.options.loss,
           .class_weights =
               c.options.class_weights.empty() ? at::Tensor() : at::tensor(c.options.class_weights, at::kFloat)},
          padded.engine.losses(), [](int) {});
      program.run(**inputs);
      EXPECT_NEAR(least.engine.losses().Mean(), padded.engine.losses().Mean(),
                  1e-5 * std::abs(least.engine.losses().Mean()))
          << c.why;
      const auto x = least.State(), y = padded.State();
      const double moment = NormOf(x, "exp_avg.");
      for (size_t i = 0; i < x.size(); ++i) {
        if (!x[i].name.starts_with("exp_avg.")) continue;
        // After the first step, this moment is a tenth of the gradient.
        EXPECT_LE((x[i].value - y[i].value).norm().item<double>(), 1e-6 * moment) << c.why << ": " << x[i].name;
      }
    }
    EXPECT_GT(farther, 0) << c.why << ": some batch must have been padded farther than by its rung";
  }
}

// Runs one step from equal states: with a block at its exact size, eagerly, and with the same block padded to its
// rung, replayed.
TEST_F(NodeTaskTest, ExactEagerStepsAndPaddedReplaysAgree) {
  for (const NodeCase& c : NodeCases()) {
    if (c.options.nodes.fan_outs.empty()) continue;  // a whole graph is never padded
    const auto graph = Graph(c.graph);
    NodeRig exact(c.options, graph, {Policy::kNever}), padded(c.options, graph, kRungs);
    const data::NeighborSamplingOptions sampling = SamplingOf(c.options, Mode::kTrain, graph->summary());
    const auto batcher = *data::BlockBatcher::Create(
        graph, {.sampling = sampling, .edge_weights = UsesEdgeWeights(c.options, *graph), .threads = 2});
    const auto splits = *ReadSplits(*graph);
    const data::EpochOrder epochs(splits[0], {.batch_size = c.options.batch_size, .seed = c.options.seed});
    const data::EpochBatches order = epochs.Of(0);
    const auto batches = padded.task->TrainBatches(0, 0);
    for (int64_t step = 0; step < epochs.batches_per_epoch(); ++step) {
      data::SampledSubgraph subgraph;
      const auto seeds = epochs.Batch(order, step);
      std::vector<int64_t> times;
      ASSERT_TRUE(
          data::SeedTimes(c.options.nodes.temporal, c.options.nodes.seed_time, graph->view()).Of(seeds, times).ok());
      ASSERT_TRUE(batcher->Sample(seeds, static_cast<uint64_t>(step), nullptr, subgraph, times).ok());
      const data::BlockSizes sizes = *data::SizesOf(subgraph, graph->view());
      // With only one probe, the lowest rung has the probe's size.
      const BlockRungs rungs = BlockRungs::Plan({sizes}, BlockBound(sampling, sizes.nodes.front(), graph->summary()));
      data::BlockBatch block;
      ASSERT_TRUE(batcher->Gather(subgraph, LeastPadded(sizes), block).ok());
      SampledBatch batch(*batcher, rungs);
      batch.Bind(block, nullptr);
      ASSERT_EQ(batch.least_padded(), LeastPadded(sizes).shape());
      const auto same = batches->Next();
      ASSERT_TRUE(same.ok() && *same != nullptr);
      nn::CopyInto(exact.State(), padded.State());
      ASSERT_TRUE(exact.engine.Train(batch, step, exact.seconds).ok()) << c.why;
      ASSERT_TRUE(padded.engine.Train(**same, step, padded.seconds).ok()) << c.why;
      EXPECT_NEAR(exact.engine.losses().Mean(), padded.engine.losses().Mean(),
                  1e-5 * std::abs(exact.engine.losses().Mean()))
          << c.why;
      const auto x = exact.State(), y = padded.State();
      const double moment = NormOf(x, "exp_avg.");
      for (size_t i = 0; i < x.size(); ++i) {
        if (!x[i].name.starts_with("exp_avg.")) continue;
        EXPECT_LE((x[i].value - y[i].value).norm().item<double>(), 1e-6 * moment) << c.why << ": " << x[i].name;
      }
    }
    EXPECT_EQ(padded.engine.cache().snapshot().of(Mode::kTrain).eager_steps, 0) << c.why;
    EXPECT_GT(padded.engine.cache().snapshot().of(Mode::kTrain).padding_nodes, epochs.batches_per_epoch()) << c.why;
  }
}

// If all neighbours are sampled, a block's prediction equals that of the whole graph and the layer-wise one.
TEST_F(NodeTaskTest, SampledWholeAndLayerWisePredictionsAgree) {
  for (const bool sparse : {false, true}) {
    for (const spec::Architecture architecture :
         {spec::Architecture::kSage, spec::Architecture::kGcn, spec::Architecture::kGin, spec::Architecture::kGatv2}) {
      const auto graph = Graph({.sparse = sparse, .weighted = true});
      spec::TrainOptions options = SampledJob(architecture);
      options.model.num_layers = 3;
      // In a block, GCN's degrees lack the edges of the outermost rows. So it needs one hop more than it has layers.
      options.nodes.fan_outs = {-1, -1, -1};
      spec::TrainOptions whole = options;
      whole.nodes.fan_outs = {};
      NodeRig blocks(options, graph, {Policy::kNever}), all(whole, graph, {Policy::kNever});
      const auto one = all.task->EvalBatches(data::Split::kTest), some = blocks.task->EvalBatches(data::Split::kTest);
      const auto everything = one->Next();
      ASSERT_TRUE(everything.ok()) << everything.status();
      const auto predicted = all.engine.Evaluate(**everything, 0);
      ASSERT_TRUE(predicted.ok()) << predicted.status();
      const at::Tensor reference = predicted->clone();
      auto model = nn::MakeNodeModel(*NodeModelFor(options, graph->summary(), kNoLimits, ""), options.seed, at::kCPU);
      const auto layer_wise = PredictLayerWise(
          *graph, *model, {.num_layers = 3, .edge_weights = UsesEdgeWeights(options, *graph)}, [] { return true; });
      ASSERT_TRUE(layer_wise.ok()) << layer_wise.status();
      EXPECT_TRUE(at::allclose(*layer_wise, reference, 1e-5, 1e-5));
      if (architecture == spec::Architecture::kGcn) continue;
      for (;;) {
        const auto batch = some->Next();
        ASSERT_TRUE(batch.ok());
        if (*batch == nullptr) break;
        const auto out = blocks.engine.Evaluate(**batch, 0);
        ASSERT_TRUE(out.ok());
        const auto ids = (*batch)->ids();
        const at::Tensor rows = at::tensor(std::vector<int64_t>(ids.begin(), ids.end()), at::kLong);
        EXPECT_TRUE(at::allclose(out->narrow(0, 0, rows.size(0)), reference.index_select(0, rows), 1e-5, 1e-5));
      }
    }
  }
}

TEST_F(NodeTaskTest, AFrozenStepAllocatesNoStorage) {
  const NodeCase c = NodeCases()[2];
  const auto graph = Graph(c.graph);
  NodeRig rig(c.options, graph, kRungs);
  int64_t step = 0;
  StorageUse before;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    if (epoch == 1) before = device::ReadStorageUse();
    const auto batches = rig.task->TrainBatches(epoch, 0);
    for (;; ++step) {
      const auto batch = batches->Next();
      ASSERT_TRUE(batch.ok());
      if (*batch == nullptr) break;
      ASSERT_TRUE(rig.engine.Train(**batch, step, rig.seconds).ok());
    }
  }
  EXPECT_EQ(device::ReadStorageUse().allocations, before.allocations);
}

}  // namespace
}  // namespace permafrost::train
