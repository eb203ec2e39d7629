// Training on the nodes of one large graph, step by step and run by run.
#include "train/node_task.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "base/file.h"
#include "base/status.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "nn/models/registry.h"
#include "norm_of.h"
#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graph.h"
#include "train/layer_wise.h"
#include "train/node_model_for.h"
#include "train/step_engine.h"
#include "train/torch_runner.h"
#include "train/whole_graph_task.h"

namespace permafrost::train {
namespace {
using graphcache::Policy;
using testing::HasSubstr;

constexpr graphcache::PolicyOptions kRungs{.policy = Policy::kFreeze, .shapes = graphcache::Shapes::kExact};

struct Case {
  const char* why;
  TinyGraphOptions graph;
  TrainOptions options;
};

TrainOptions Sampled(nn::Architecture architecture) {
  TrainOptions options;
  options.model = DefaultOptions(nn::ModelLevel::kNode).model;
  options.model.architecture = architecture;
  options.model.hidden_channels = 16;
  options.optimizer.learning_rate = 1e-2;
  options.loss = nn::Loss::kCrossEntropy;
  options.nodes.fan_outs = {4, 3};
  options.batch_size = 50;  // 240 training nodes: four full batches and one of 40
  options.epochs = 4;
  options.seed = 3;
  return options;
}

std::vector<Case> Cases() {
  using enum nn::Architecture;
  TrainOptions dropout = Sampled(kSage);
  dropout.model.dropout = 0.4;
  dropout.class_weights = {1, 2, 0.5};
  dropout.optimizer.max_grad_norm = 0.1;
  TrainOptions deep = Sampled(kSage);
  deep.model.num_layers = 3;
  deep.nodes.fan_outs = {3, -1, 2};
  deep.nodes.replace = true;
  TrainOptions many = Sampled(kGcn);
  many.loss = nn::Loss::kBce;
  many.nodes.weighted = true;
  // The last batch, of few seeds, finds more in a hop than a full one leaves; evaluation has one of a single seed.
  TrainOptions wide = Sampled(kSage);
  wide.nodes.fan_outs = {200, 200};
  wide.nodes.replace = true;
  wide.batch_size = 79;
  TrainOptions disjoint = Sampled(kGcn);
  disjoint.nodes.disjoint = true;
  TrainOptions apart = Sampled(kSage);
  apart.nodes.disjoint = true;
  TrainOptions labor = Sampled(kSage);
  labor.nodes.sampler = data::SamplerKind::kLabor;
  TrainOptions latest = Sampled(kGatv2);
  latest.nodes.temporal = data::TemporalSampling::kLast;
  TrainOptions earlier = Sampled(kSage);
  earlier.nodes.temporal = data::TemporalSampling::kUniform;
  earlier.nodes.seed_time = 40;
  TrainOptions whole = Sampled(kGcn);
  whole.nodes.fan_outs = {};
  whole.model.dropout = 0.5;
  return {{"SAGE", {}, Sampled(kSage)},
          {"GCN, weighted edges", {.weighted = true}, Sampled(kGcn)},
          {"SAGE, sparse features, dropout, class weights, clipping", {.sparse = true}, dropout},
          {"SAGE of three layers, all neighbours in the second, with replacement", {}, deep},
          {"GCN, sparse features, several targets, drawn by weight",
           {.sparse = true, .weighted = true, .targets = 3},
           many},
          {"SAGE, more drawn than there is, odd batches", {}, wide},
          {"GCN, each seed apart, sparse features", {.sparse = true, .weighted = true}, disjoint},
          {"SAGE, each seed apart", {}, apart},
          {"SAGE, drawn by LABOR", {}, labor},
          {"GATv2, the latest edges", {.timestamped = true}, latest},
          {"SAGE, edges before a time", {.timestamped = true}, earlier},
          {"GCN on the whole graph, dropout", {}, whole}};
}

// A model with its optimizer and engine, as a run has them.
struct NodeRig {
  NodeRig(TrainOptions train_options, const std::shared_ptr<const data::Graph>& graph, graphcache::PolicyOptions policy)
      : options(With(std::move(train_options), policy)),
        task(*Task::Create(options, graph, at::kCPU, 2, [] { return true; })),
        optimizer(options.optimizer, task->tensors().parameters()),
        engine(options, *task, optimizer, *backend, context) {}
  static TrainOptions With(TrainOptions options, graphcache::PolicyOptions policy) {
    options.graph_cache = policy;
    return options;
  }
  std::vector<nn::NamedTensor> State() const {
    std::vector<nn::NamedTensor> all = task->tensors().All();
    all.insert(all.end(), optimizer.state().begin(), optimizer.state().end());
    all.insert(all.end(), engine.losses().tensors().begin(), engine.losses().tensors().end());
    return all;
  }

  const TrainOptions options;
  const std::unique_ptr<Task> task;
  Recorder context;
  nn::Optimizer optimizer;
  const std::unique_ptr<device::Backend> backend = *device::OpenBackend(DeviceKind::kCpu);
  StepEngine engine;
  PhaseSeconds seconds;
};

class NodeTaskTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { device::InstallStorageAllocator(); }
  void SetUp() override { device::UseThreads(2); }
  std::shared_ptr<const data::Graph> Graph(const TinyGraphOptions& options) {
    return WriteTinyGraph(dir_.path() / std::to_string(++graphs_), options);
  }

  TempDir dir_;
  int graphs_ = 0;
};

TEST_F(NodeTaskTest, ReplaysAreBitEqualToEagerStepsAndNothingIsCompiledAfterTheFreeze) {
  for (const Case& c : Cases()) {
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

// The same block at its own rung and at the top one: one step from equal states.
TEST_F(NodeTaskTest, PaddingChangesNothing) {
  for (const Case& c : Cases()) {
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
      // Past the cache, which would pad it back to its own rung.
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
        // A tenth of it is the gradient.
        EXPECT_LE((x[i].value - y[i].value).norm().item<double>(), 1e-6 * moment) << c.why << ": " << x[i].name;
      }
    }
    EXPECT_GT(farther, 0) << c.why << ": some batch must have been padded farther than by its rung";
  }
}

// A block at its exact size, run eagerly, and the same block padded to its rung and replayed: one step from equal
// states.
TEST_F(NodeTaskTest, ExactEagerStepsAndPaddedReplaysAgree) {
  for (const Case& c : Cases()) {
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
      const std::vector<int64_t> times(c.options.nodes.seed_time ? seeds.size() : 0,
                                       c.options.nodes.seed_time.value_or(0));
      ASSERT_TRUE(batcher->Sample(seeds, static_cast<uint64_t>(step), nullptr, subgraph, times).ok());
      const data::BlockSizes sizes = *data::SizesOf(subgraph, graph->view());
      // Of one probe, the lowest rung is its size.
      const BlockRungs rungs = BlockRungs::Plan({sizes}, BlockBound(sampling, sizes.nodes.front(), graph->summary()));
      data::BlockBatch block;
      ASSERT_TRUE(batcher->Gather(subgraph, LeastPadded(sizes), block).ok());
      SampledBatch batch(*batcher, rungs, at::kCPU);
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

// With every neighbour sampled, a block's prediction is the whole graph's, and so is the layer-wise one.
TEST_F(NodeTaskTest, SampledWholeAndLayerWisePredictionsAgree) {
  for (const bool sparse : {false, true}) {
    for (const nn::Architecture architecture :
         {nn::Architecture::kSage, nn::Architecture::kGcn, nn::Architecture::kGin, nn::Architecture::kGatv2}) {
      const auto graph = Graph({.sparse = sparse, .weighted = true});
      TrainOptions options = Sampled(architecture);
      options.model.num_layers = 3;
      // GCN's degrees within a block lack the edges of its outermost rows: one more hop than layers would be needed.
      options.nodes.fan_outs = {-1, -1, -1};
      TrainOptions whole = options;
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
      if (architecture == nn::Architecture::kGcn) continue;
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
  const Case c = Cases()[2];
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

class NodeRunTest : public NodeTaskTest {
 protected:
  void SetUp() override { runner_ = *MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2}); }
  absl::StatusOr<RunOutcome> Run(const TrainOptions& options, const std::shared_ptr<const data::Graph>& graph,
                                 const std::string& job, RunContext& context) {
    return runner_->Run({.options = options, .dataset = graph, .job_directory = dir_.path() / job}, context);
  }
  std::string Artifact(const std::string& job, std::string_view name) {
    const auto data = ReadFile(dir_.path() / job / "artifacts" / name);
    EXPECT_TRUE(data.ok()) << data.status();
    return data.ok() ? *data : "";
  }

  std::unique_ptr<Runner> runner_;
};

TEST_F(NodeRunTest, EveryKindLearnsAndTellsOfIt) {
  std::vector<Case> cases = Cases();
  TrainOptions layer_wise = Sampled(nn::Architecture::kGcn);
  layer_wise.nodes.layer_wise_evaluation = true;
  cases.push_back({"layer-wise evaluation", {.weighted = true}, layer_wise});
  for (Case& c : cases) {
    const auto graph = Graph(c.graph);
    c.options.epochs = 30;
    c.options.graph_cache.policy = Policy::kFreeze;
    Recorder told;
    const std::string job = "job-" + std::to_string(graphs_);
    const auto outcome = Run(c.options, graph, job, told);
    ASSERT_TRUE(outcome.ok()) << c.why << ": " << outcome.status();
    ASSERT_EQ(told.epochs.size(), 30U);
    EXPECT_LT(told.epochs.back().train_loss, 0.9 * told.epochs.front().train_loss) << c.why;
    EXPECT_GT(told.epochs.back().valid_metric, 0.7) << c.why << ": accuracy or ROC-AUC";
    EXPECT_LE(told.epochs.back().valid_metric, 1.0) << c.why;
    EXPECT_EQ(told.progress.graphs, 30 * 240) << c.why << ": seeds";
    const RunResult& result = *outcome->result;
    const auto best = std::ranges::max_element(told.epochs, {}, &EpochMetrics::valid_metric);
    EXPECT_EQ(result.best_epoch, best->epoch) << c.why << ": the highest is the best";
    EXPECT_GT(result.best_test_metric, 0.6) << c.why;
    const std::string predictions = Artifact(job, kTestPredictionsFile);
    EXPECT_THAT(predictions, testing::StartsWith("node,prediction_0,prediction_1,prediction_2\n")) << c.why;
    EXPECT_EQ(std::ranges::count(predictions, '\n'), 1 + 80) << c.why;
    for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
      EXPECT_EQ(told.cache.of(mode).eager_steps, 0) << c.why;
      EXPECT_EQ(told.cache.of(mode).graph_breaks, 0) << c.why;
    }
    EXPECT_EQ(told.progress.look_ahead.has_value(), !c.options.nodes.fan_outs.empty()) << c.why;
    if (told.progress.look_ahead) {
      EXPECT_GT(told.progress.look_ahead->sampled_edges, 0) << c.why;
    }
  }
}

TEST_F(NodeRunTest, PredictionsAreOfTheSourcesNames) {
  std::vector<Case> cases = {Cases()[2], Cases().back()};
  ASSERT_TRUE(!cases[0].options.nodes.fan_outs.empty() && cases[1].options.nodes.fan_outs.empty());
  for (Case& c : cases) {
    Recorder told;
    const std::string rows = "rows-" + std::to_string(graphs_), names = "names-" + std::to_string(graphs_);
    c.options.epochs = 1;
    ASSERT_TRUE(Run(c.options, Graph(c.graph), rows, told).ok()) << c.why;
    c.graph.named = true;
    ASSERT_TRUE(Run(c.options, Graph(c.graph), names, told).ok()) << c.why;
    const std::string plain = Artifact(rows, kTestPredictionsFile);
    EXPECT_THAT(plain, testing::HasSubstr("\n4,")) << c.why;
    std::istringstream lines(plain);
    std::string want, line;
    std::getline(lines, want);
    want += '\n';
    while (std::getline(lines, line)) {
      const size_t comma = line.find(',');
      want += "\"the " + line.substr(0, comma) + "rd, \"\"x\"\"\"" + line.substr(comma) + "\n";
    }
    EXPECT_EQ(Artifact(names, kTestPredictionsFile), want) << c.why << ": RFC 4180";
  }
}

TEST_F(NodeRunTest, ARunStoppedAnywhereEndsBitEqualToAnUndisturbedOne) {
  const std::vector<Case> cases = Cases();
  // SAGE and GCN on samples, and GCN on the whole graph, whose epochs are steps.
  for (const size_t place : {size_t{2}, size_t{4}, size_t{6}}) {
    for (const graphcache::Shapes shapes : {graphcache::Shapes::kAuto, graphcache::Shapes::kExact}) {
      Case c = cases[place];
      c.options.graph_cache.shapes = shapes;
      const bool whole_graph = c.options.nodes.fan_outs.empty();
      if (whole_graph && shapes == graphcache::Shapes::kExact) continue;  // the same
      const auto graph = Graph(c.graph);
      const std::string name = std::to_string(place) + "-" + std::string(graphcache::kShapesNames.Name(shapes));
      const std::string whole = "whole-" + name;
      Recorder undisturbed;
      const auto run = Run(c.options, graph, whole, undisturbed);
      ASSERT_TRUE(run.ok()) << c.why << ": " << run.status();
      for (const int64_t stop_step : whole_graph ? std::vector<int64_t>{0, 1, 3} : std::vector<int64_t>{0, 2, 5, 13}) {
        const std::string job = "stopped-" + name + "-" + std::to_string(stop_step);
        Recorder first, second;
        first.stop = [&](const Progress& p) { return p.step >= stop_step ? StopRequest::kDrain : StopRequest::kNone; };
        const auto stopped = Run(c.options, graph, job, first);
        ASSERT_TRUE(stopped.ok()) << c.why;
        ASSERT_EQ(stopped->end, RunEnd::kDrained) << c.why;
        ASSERT_TRUE(Run(c.options, graph, job, second).ok()) << c.why;
        EXPECT_EQ(Artifact(job, kLastWeightsFile), Artifact(whole, kLastWeightsFile)) << c.why << " " << stop_step;
        EXPECT_EQ(Artifact(job, kBestWeightsFile), Artifact(whole, kBestWeightsFile)) << c.why << " " << stop_step;
        EXPECT_EQ(Artifact(job, kTestPredictionsFile), Artifact(whole, kTestPredictionsFile))
            << c.why << " " << stop_step;
      }
    }
  }
}

TEST_F(NodeRunTest, WhatAGraphCannotServeIsRefusedBeforeTheRun) {
  const data::GraphSummary fine = Graph({})->summary();
  const TrainOptions sage = Sampled(nn::Architecture::kSage);
  const auto with = [](auto value, const auto& change) {
    change(value);
    return value;
  };
  using S = data::GraphSummary;
  const struct {
    const char* why;
    TrainOptions options;
    S summary;
    const char* field;
    const char* says;
  } kCases[] = {
      {"a graph-level model", with(sage, [](auto& o) { o.model.level = nn::ModelLevel::kGraph; }), fine,
       "spec.model.architecture", "one graph of 400 nodes; use gine or sage or gcn or gin or gatv2"},
      {"no features of edges", with(sage, [](auto& o) { o.model.architecture = nn::Architecture::kGine; }), fine,
       "spec.model.edge_inputs", "gine reads features of edges, and the dataset's edges have none; accepted: another"},
      {"weights in place of features of edges",
       with(sage, [](auto& o) { o.model.architecture = nn::Architecture::kGine; }),
       with(fine, [](S& s) { s.weighted = true; }), "spec.model.edge_inputs", "accepted: weights, or another model"},
      {"no weights of edges",
       with(sage,
            [](auto& o) {
              o.model.architecture = nn::Architecture::kGatv2;
              o.model.edge_inputs = nn::EdgeInputs::kWeights;
            }),
       fine, "spec.model.edge_inputs", "is weights, and the dataset's edges have none"},
      {"integers of edges that are no categories",
       with(sage, [](auto& o) { o.model.architecture = nn::Architecture::kGatv2; }),
       with(fine,
            [](S& s) { s.edge_features = {.type = data::DataType::kInt64, .width = 1, .min = {-4}, .max = {9}}; }),
       "spec.dataset", "edge feature column 0 has integers -4..9"},
      {"no features", with(sage, [](auto& o) { o.model.node_inputs = nn::NodeInputs::kFeatures; }),
       with(fine, [](S& s) { s.node_features = {}; }), "spec.model.node_inputs", "no features"},
      {"learned inputs of more nodes than memory holds", sage,
       with(fine,
            [](S& s) {
              s.node_features = {};
              s.nodes = 3'000'000'000;
            }),
       "spec.model", "needs about"},
      {"no training nodes", sage, with(fine, [](S& s) { s.split_nodes = {}; }), "spec.dataset", "train split is empty"},
      {"no labels", sage, with(fine, [](S& s) { s.num_targets = 0; }), "spec.dataset", "no labels"},
      {"classes that are fractions", sage, with(fine, [](S& s) { s.integer_labels = false; }), "spec.loss",
       "fractions in 0..2"},
      {"negative classes", sage, with(fine, [](S& s) { s.min_label = -1; }), "spec.loss", "-1..2"},
      {"several targets", sage, with(fine, [](S& s) { s.num_targets = 2; }), "spec.loss", "2 targets; use bce"},
      {"binary loss, three classes", with(sage, [](auto& o) { o.loss = nn::Loss::kBce; }), fine, "spec.loss",
       "labels 0 and 1, and the dataset's are 0..2"},
      {"weights of other classes",
       with(sage,
            [](auto& o) {
              o.class_weights = {1, 2};
            }),
       fine, "spec.class_weights", "has 2 weights; the dataset has 3 classes"},
      {"no edge weights to draw by", with(sage, [](auto& o) { o.nodes.weighted = true; }), fine,
       "spec.neighbor_sampling.weighted", "no weights"},
      {"beyond the memory", with(sage, [](auto& o) { o.nodes.fan_outs = {}; }),
       with(fine,
            [](S& s) {
              s.nodes = 3'000'000'000;
              s.edges = 100'000'000'000;
            }),
       "spec.model", "the whole graph in every step"},
  };
  EXPECT_TRUE(runner_->CheckCompatible(sage, fine, "spec.").ok());
  for (const auto& c : kCases) {
    const absl::Status status = runner_->CheckCompatible(c.options, c.summary, "spec.");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.why;
    ASSERT_EQ(GetViolations(status).size(), 1U) << c.why;
    EXPECT_EQ(GetViolations(status)[0].field, c.field) << c.why;
    EXPECT_THAT(GetViolations(status)[0].description, HasSubstr(c.says)) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::train
