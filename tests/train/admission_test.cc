// Tests that a job is refused before it runs if it would take too much memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "device/backend.h"
#include "device/cpu/storage.h"
#include "nn/optimizer.h"
#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graph.h"
#include "tiny_graphs.h"
#include "train/loop/step_engine.h"
#include "train/planning/job_schedule.h"
#include "train/tasks/job_data.h"
#include "train/tasks/node_model_for.h"

namespace permafrost::train {
namespace {

using testing::HasSubstr;

constexpr uint64_t kGigabyte = 1'000'000'000;

data::GraphSetSummary Set() {
  data::GraphSetSummary set;
  set.splits[0] = {.graphs = 10'000,
                   .nodes = 250'000,
                   .edges = 500'000,
                   .mean_nodes = 25,
                   .std_nodes = 5,
                   .mean_edges = 50,
                   .std_edges = 10,
                   .max_nodes = 40,
                   .max_edges = 90};
  set.all = set.splits[0];
  set.node_features = {.type = data::DataType::kInt32, .width = 1, .min = {0}, .max = {27}};
  set.num_targets = 1;
  return set;
}

data::GraphSummary Graph() {
  data::GraphSummary graph;
  graph.nodes = 1'000'000;
  graph.edges = 3'000'000;
  graph.max_degree = 40;
  graph.node_features = {.type = data::DataType::kFloat32, .width = 16, .min = {}, .max = {}};
  graph.num_targets = 1;
  graph.max_label = 9;
  graph.integer_labels = true;
  graph.split_nodes = {600'000, 200'000, 200'000};
  return graph;
}

spec::TrainOptions Sampled(std::vector<int64_t> fan_outs, bool replace) {
  spec::TrainOptions options = DefaultOptions(spec::ModelLevel::kNode);
  options.model.num_layers = std::ssize(fan_outs);
  options.nodes.fan_outs = std::move(fan_outs);
  options.nodes.replace = replace;
  return options;
}

// Returns the admission of a job on Set() whose largest batch has 25 nodes per graph.
absl::Status Judge(const spec::TrainOptions& options, const MemoryLimits& limits) {
  const auto model = GraphModelFor(options, Set(), "spec.");
  if (!model.ok()) return model.status();
  const int64_t graphs = options.batch_size;
  const BatchShape largest{25 * graphs, 50 * graphs, graphs};
  const graphcache::ShapeSchedule plan{
      .train_ceiling = largest, .known_train_shapes = 5000, .train_schedule = {{largest, 1}}};
  Violations violations;
  CheckFits(*MemoryOf(options, *model, Set(), plan, limits, "spec."), limits, "its batches", "spec.", violations);
  return violations.ToStatus();
}

TEST(Admission, BothLevelsAreJudgedByTheGivenLimit) {
  spec::TrainOptions gine;
  gine.model.hidden_channels = 512;
  gine.batch_size = 4096;
  EXPECT_TRUE(Judge(gine, {100 * kGigabyte}).ok());
  const absl::Status refused = Judge(gine, {kGigabyte});
  ASSERT_EQ(GetViolations(refused).size(), 1U);
  EXPECT_EQ(GetViolations(refused)[0].field, "spec.model");
  EXPECT_THAT(GetViolations(refused)[0].description, HasSubstr("(its batches); this process may use 1 GB"));

  spec::TrainOptions whole = DefaultOptions(spec::ModelLevel::kNode);
  whole.model.architecture = spec::Architecture::kGcn;
  whole.model.hidden_channels = 256;
  EXPECT_TRUE(NodeModelFor(whole, Graph(), {100 * kGigabyte}, "").ok());
  const absl::Status too_large = NodeModelFor(whole, Graph(), {kGigabyte}, "spec.").status();
  ASSERT_EQ(GetViolations(too_large).size(), 1U);
  EXPECT_THAT(GetViolations(too_large)[0].description,
              HasSubstr("(the whole graph in every step); this process may use 1 GB"));
}

// A device with its own memory holds the weights and the steps. The process's memory holds the batches.
TEST(Admission, ADevicesOwnMemoryIsForWhatLiesThere) {
  spec::TrainOptions gine;
  gine.model.hidden_channels = 512;
  gine.batch_size = 4096;
  const auto violations = [&](const MemoryLimits& limits) { return GetViolations(Judge(gine, limits)); };
  const MemoryLimits large{.process = kGigabyte, .device = 100 * kGigabyte};
  EXPECT_EQ(violations(large), std::vector<FieldViolation>()) << "the batches are small";
  const auto small = violations({.process = 100 * kGigabyte, .device = kGigabyte});
  ASSERT_EQ(small.size(), 1U);
  EXPECT_EQ(small[0].field, "spec.model");
  EXPECT_THAT(small[0].description, HasSubstr("(its batches); the device has 1 GB"));
  const auto no_host = violations({.process = 1'000'000, .device = 100 * kGigabyte});
  ASSERT_EQ(no_host.size(), 1U);
  EXPECT_THAT(no_host[0].description, HasSubstr("this process may use 0 GB"));
}

TEST(Admission, ARecordingTakesMoreThanTheStep) {
  spec::TrainOptions gine;
  const auto least = [&](bool records) {
    uint64_t limit = 1;
    while (!Judge(gine, {.process = limit, .records = records}).ok()) limit += limit / 64 + 1;
    return limit;
  };
  EXPECT_LT(least(/*records=*/false), least(/*records=*/true));
}

// A captured graph of the device keeps a step's memory. To prove the graph, the step runs once more beside it.
TEST(Admission, AGraphOfTheDeviceTakesItsStepTwiceAndItsInputsAgain) {
  spec::TrainOptions gine;
  gine.graph_cache.shapes = spec::Shapes::kLadder;
  const auto least = [&](bool graphs) {
    uint64_t limit = 1;
    const auto fits = [&] {
      return Judge(gine, {.process = 100 * kGigabyte, .device = limit, .records = false, .graphs = graphs}).ok();
    };
    while (!fits()) limit += limit / 256 + 1;
    return static_cast<double>(limit);
  };
  const double eager = least(/*graphs=*/false), graphs = least(/*graphs=*/true);
  EXPECT_GT(graphs, 1.7 * eager) << "a step is most of it";
  EXPECT_LT(graphs, 2.3 * eager);
  gine.graph_cache.policy = spec::Policy::kNever;
  EXPECT_NEAR(least(/*graphs=*/true), eager, eager / 100) << "nothing is captured";

  gine = {};
  gine.graph_cache.policy = spec::Policy::kAlways;
  gine.graph_cache.shapes = spec::Shapes::kExact;
  const auto many = least(/*graphs=*/true);
  const auto refused = GetViolations(Judge(
      gine, {.process = 100 * kGigabyte, .device = static_cast<uint64_t>(many / 2), .records = false, .graphs = true}));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].description, HasSubstr("and 4096 executables, "));
  EXPECT_THAT(refused[0].description, HasSubstr("; the device has"));
}

// Thousands of executables take more memory than a step.
TEST(Admission, ExecutablesAreCounted) {
  spec::TrainOptions gine;
  gine.model.hidden_channels = 8;
  gine.batch_size = 4;
  gine.graph_cache.policy = spec::Policy::kAlways;
  const MemoryLimits limits{.process = 100'000'000};
  const auto refused = GetViolations(Judge(gine, limits));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_THAT(refused[0].description, HasSubstr("(its batches, and 4096 executables, 0.3 GB of it); this process may"));
  gine.graph_cache.max_executables = 100;
  EXPECT_EQ(Judge(gine, limits), absl::OkStatus());
  gine.graph_cache = {};
  EXPECT_EQ(Judge(gine, limits), absl::OkStatus()) << "one for every shape";
}

// With replacement, a node draws the full fan-out, however few neighbours it has.
TEST(Admission, DrawsWithReplacementAreCountedAsDrawn) {
  EXPECT_TRUE(NodeModelFor(Sampled({9000, 9000}, false), Graph(), {kGigabyte}, "").ok())
      << "three neighbours a node are all that there is";
  const absl::Status refused = NodeModelFor(Sampled({9000, 9000}, true), Graph(), {kGigabyte}, "spec.").status();
  ASSERT_EQ(GetViolations(refused).size(), 1U);
  EXPECT_THAT(GetViolations(refused)[0].description, HasSubstr("(a sampled batch)"));
}

TEST(Admission, EvaluationIsJudgedByItsOwnFanOuts) {
  spec::TrainOptions options = Sampled({3, 3}, true);
  EXPECT_TRUE(NodeModelFor(options, Graph(), {kGigabyte}, "").ok());
  options.nodes.eval_fan_outs = {9000, 9000};
  EXPECT_FALSE(NodeModelFor(options, Graph(), {kGigabyte}, "").ok());
}

// At the end, a job needs memory for each row that it predicts for.
TEST(Admission, WhatAnEvaluationKeepsOfEachNodeCounts) {
  const auto bytes = [](const spec::TrainOptions& options, int64_t test_nodes) {
    data::GraphSummary graph = Graph();
    graph.split_nodes = {600'000, 0, test_nodes};
    const auto model = NodeModelFor(options, graph, kNoLimits, "");
    EXPECT_TRUE(model.ok()) << model.status();
    return static_cast<double>(NodeJobBytes(options, *model, graph, kNoLimits));
  };
  spec::TrainOptions options = Sampled({3, 3}, false);
  options.loss = spec::Loss::kCrossEntropy;
  constexpr double kNodes = 1'000'000, kOutputs = 10;
  // Bytes per node: the outputs, a label, an id, a score with its label, and two doubles for the probabilities. The
  // sum is rounded to whole bytes.
  EXPECT_NEAR(bytes(options, 1'000'000) - bytes(options, 0), kNodes * (4 * kOutputs + 4 + 4 + 8 + 16), 2);
  options.nodes.layer_wise_evaluation = true;
  EXPECT_NEAR(bytes(options, 1'000'000) - bytes(options, 0), kNodes * (8 * kOutputs + 4 + 4 + 8 + 16), 2);
}

// Nearly all memory of this job is a table of weights.
TEST(Admission, AResumeReadsTheOptimizersFileBesideWhatTheRunHolds) {
  constexpr double kNodes = 1'000'000, kChannels = 64, kTable = 4 * kNodes * kChannels;
  data::GraphSummary graph = Graph();
  graph.node_features = {};
  spec::TrainOptions options = Sampled({2}, false);
  options.batch_size = 10;
  options.model.hidden_channels = 64;
  const auto tables = [&](const MemoryLimits& limits) {
    const auto model = NodeModelFor(options, graph, limits, "");
    EXPECT_TRUE(model.ok()) << model.status();
    return static_cast<double>(NodeJobBytes(options, *model, graph, limits)) / kTable;
  };
  MemoryLimits limits = kNoLimits;
  // 4 tables for the weights, two moments and the best weights; 1.1 for a gradient in an arena with gaps; 4 for the
  // moments as bytes and as tensors.
  EXPECT_NEAR(tables(limits), 4 + 1.1 + 4, 0.2);
  limits.device = 100 * kGigabyte;
  EXPECT_NEAR(tables(limits), 4, 0.2) << "the rest is the device's";
  limits.device = std::nullopt;
  limits.trains = false;
  EXPECT_NEAR(tables(limits), 2, 0.2) << "an evaluation has the weights, and those that they are read from";
  limits.trains = true;
  options.optimizer.accumulate_steps = 4;
  EXPECT_NEAR(tables(limits), 5 + 1.1 + 6, 0.2) << "and the sums of gradients";
}

// Returns the peak of tensor memory during a job's first steps, including their captures.
int64_t MeasuredPeak(const spec::TrainOptions& options, const data::OpenedDataset& dataset) {
  const auto backend = *device::OpenBackend(DeviceKind::kCpu);
  const int64_t before = backend->storage().bytes;
  backend->RestartStoragePeak();
  Recorder context;
  const auto task = *Task::Create(options, dataset, at::kCPU, 2, [] { return true; });
  nn::Optimizer optimizer(options.optimizer, task->tensors().parameters());
  StepEngine engine(options, *task, optimizer, *backend, context);
  PhaseSeconds seconds;
  for (int64_t epoch = 0, step = 0; epoch < 2; ++epoch) {
    const auto batches = task->TrainBatches(epoch, 0);
    for (auto batch = batches->Next(); batch.ok() && *batch != nullptr; batch = batches->Next()) {
      EXPECT_TRUE(engine.Train(**batch, step++, seconds).ok());
    }
  }
  EXPECT_GT(engine.cache().of(Mode::kTrain).captures, 0);
  return backend->storage().peak_bytes - before;
}

// Expects that the job is refused if the limit equals its measured peak, and admitted at four times the peak.
void ExpectJudgedByWhatItTakes(const std::string& why, int64_t peak,
                               const std::function<absl::Status(uint64_t limit)>& judge) {
  EXPECT_FALSE(judge(static_cast<uint64_t>(peak)).ok()) << why << " took " << peak << " bytes and was promised fewer";
  const absl::Status admitted = judge(static_cast<uint64_t>(4 * peak));
  EXPECT_TRUE(admitted.ok()) << why << " took " << peak << " bytes: " << admitted;
}

TEST(Admission, AnAdmittedJobFits) {
  device::InstallStorageAllocator();
  device::UseThreads(2);
  TempDir dir;
  const std::shared_ptr<const data::Graph> graphs[] = {
      WriteTinyGraph(dir.path() / "dense", {.nodes = 20'000}),
      WriteTinyGraph(dir.path() / "sparse", {.nodes = 20'000, .sparse = true, .weighted = true}),
      WriteTinyGraph(dir.path() / "floats", {.nodes = 20'000, .edge_floats = 3}),
      WriteTinyGraph(dir.path() / "categories", {.nodes = 20'000, .edge_categories = 40})};
  // Options added to a plain model.
  const std::pair<const char*, void (*)(spec::ModelOptions&)> kinds[] = {
      {"", [](spec::ModelOptions&) {}},
      {", dropout", [](spec::ModelOptions& m) { m.dropout = 0.5; }},
      {", layer norm, residual, cat",
       [](spec::ModelOptions& m) {
         m.norm = spec::Norm::kLayer;
         m.residual = true;
         m.jumping_knowledge = spec::JumpingKnowledge::kCat;
         if (m.level == spec::ModelLevel::kGraph) m.virtual_node = true;
       }},
      {", batch norm, max", [](spec::ModelOptions& m) {
         m.norm = spec::Norm::kBatch;
         m.jumping_knowledge = spec::JumpingKnowledge::kMax;
         if (m.level == spec::ModelLevel::kNode) m.input_dropout = 0.5;
         if (spec::TraitsOf(m.architecture).has_heads) m.heads = 4;
       }}};
  const auto set = ImportTinyGraphs(dir.path() / "set", 3000);
  for (const spec::ModelTraits& traits : spec::kOwnModels) {
    for (const int64_t layers : {1, 3}) {
      for (const auto& [kind, change] : kinds) {
        for (const spec::ModelLevel level : {spec::ModelLevel::kGraph, spec::ModelLevel::kNode}) {
          if (!traits.Serves(level) || traits.walks) continue;
          spec::TrainOptions options = DefaultOptions(level);
          options.model.architecture = traits.architecture;
          options.model.hidden_channels = 32;
          options.model.num_layers = layers;
          change(options.model);
          const std::string why = absl::StrCat(std::string(traits.name), ", ", layers, " layers", kind);
          if (level == spec::ModelLevel::kGraph) {
            options.batch_size = 1000;
            ExpectJudgedByWhatItTakes(why + ", of graphs", MeasuredPeak(options, set), [&](uint64_t limit) {
              return Task::CheckFits(options, set, {.limits = {limit}}, "", [] { return true; }).status();
            });
            continue;
          }
          for (const auto& graph : graphs) {
            const bool edges = graph->summary().edge_features.width > 0;
            if (traits.edges == (edges ? spec::EdgeUse::kNone : spec::EdgeUse::kNeeded)) continue;
            ExpectJudgedByWhatItTakes(why + ", of nodes", MeasuredPeak(options, graph), [&](uint64_t limit) {
              return NodeModelFor(options, graph->summary(), {limit}, "").status();
            });
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::train
