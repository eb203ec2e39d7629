// Tests jobs on sets of unusual graphs: two of their batches prove a capture, and their sizes determine when the
// cache freezes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "recorder.h"
#include "temp_dir.h"
#include "tiny_graphs.h"
#include "train/loop/torch_runner.h"

namespace permafrost::train {
namespace {

using spec::Policy;

// Returns a path of `nodes` nodes.
TinyGraph Path(unsigned nodes, double label) {
  TinyGraph graph{.categories = std::vector<unsigned>(nodes, 0), .edges = {}, .edge_categories = {}, .label = label};
  for (unsigned v = 1; v < nodes; ++v) graph.edges.emplace_back(v - 1, v);
  return graph;
}

TinyGraph WithoutEdges(unsigned nodes, double label) {
  return {.categories = std::vector<unsigned>(nodes, 0), .edges = {}, .edge_categories = {}, .label = label};
}

struct UnusualSet {
  const char* why;
  std::vector<TinyGraph> graphs;
  spec::Loss loss = spec::Loss::kBce;
  std::vector<double> class_weights;
  int64_t batch_size = 4;
};

template <class Make>
std::vector<TinyGraph> Many(int count, const Make& make) {
  std::vector<TinyGraph> graphs;
  graphs.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) graphs.push_back(make(i));
  return graphs;
}

std::vector<UnusualSet> UnusualSets() {
  const auto label = [](int i) { return static_cast<double>(i % 2); };
  const auto every_second_empty = [&](int i) {
    return i % 2 == 0 ? WithoutEdges(0, label(i / 2)) : Path(5, label(i / 2));
  };
  const auto empty = [&](int i) { return WithoutEdges(0, label(i)); };
  const auto no_edges = [&](int i) { return WithoutEdges(3, label(i)); };
  const auto path = [&](int i) { return Path(2 + static_cast<unsigned>(i) % 4, label(i)); };
  const auto one_class = [&](int i) { return Path(2 + static_cast<unsigned>(i) % 4, 1); };
  const auto unlabelled = [&](int) { return Path(3, std::numeric_limits<double>::quiet_NaN()); };
  const auto some_labelled = [&](int i) { return i % 3 == 0 ? unlabelled(i) : path(i); };
  return {{"empty graphs among others", Many(60, every_second_empty)},
          {"empty graphs among others, one a batch", Many(60, every_second_empty), spec::Loss::kL1, {}, 1},
          {"empty graphs alone", Many(40, empty)},
          {"no edges", Many(40, no_edges)},
          {"no edges, one a batch", Many(40, no_edges), spec::Loss::kMse, {}, 1},
          {"class weights, one graph a batch", Many(40, path), spec::Loss::kBce, {1, 3}, 1},
          {"class weights, missing labels", Many(60, some_labelled), spec::Loss::kBce, {0.5, 2}, 1},
          {"one class, its weights", Many(40, one_class), spec::Loss::kBce, {1, 3}, 1}};
}

class UnusualSetsTest : public testing::Test {
 protected:
  TempDir dir_;
};

// Every shape that comes is captured, under the default policy and under one that captures all.
TEST_F(UnusualSetsTest, AreCapturedAndTrained) {
  const auto runner = MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
  ASSERT_TRUE(runner.ok()) << runner.status();
  int n = 0;
  for (const UnusualSet& c : UnusualSets()) {
    const std::filesystem::path directory = dir_.path() / std::to_string(n++);
    const auto set = ImportGraphs(directory, c.graphs);
    for (const Policy policy : {Policy::kFreeze, Policy::kAlways}) {
      spec::TrainOptions options;
      options.model = {.hidden_channels = 8, .num_layers = 2};
      options.loss = c.loss;
      options.class_weights = c.class_weights;
      options.batch_size = c.batch_size;
      options.epochs = 2;
      options.graph_cache.policy = policy;
      Recorder told;
      const auto outcome = (*runner)->Run({.options = options,
                                           .dataset = set,
                                           .job_directory = directory / std::string(spec::kPolicyNames.Name(policy))},
                                          told);
      ASSERT_TRUE(outcome.ok()) << c.why << ": " << outcome.status();
      EXPECT_EQ(outcome->end, RunEnd::kSucceeded) << c.why;
      for (const Mode mode : {Mode::kTrain, Mode::kEval}) {
        EXPECT_EQ(told.cache.of(mode).graph_breaks, 0) << c.why << "\n" << told.log;
        EXPECT_EQ(told.cache.of(mode).eager_steps, 0) << c.why;
      }
    }
  }
}

// The formula has no answer if all graphs have the same number of nodes, of edges, or of both.
TEST_F(UnusualSetsTest, WithoutASpreadOfSizesTheScheduleFreezesTheCache) {
  const auto runner = MakeTorchRunner({.device = DeviceKind::kCpu, .threads = 2});
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto equal_nodes = [](int i) {
    TinyGraph graph = Path(6, i % 5);
    graph.edges.resize(static_cast<size_t>(i) % 6);
    return graph;
  };
  const auto equal_edges = [](int i) {
    TinyGraph graph = Path(4, i % 5);
    graph.categories.resize(4 + static_cast<size_t>(i) % 6, 0);
    return graph;
  };
  const struct {
    const char* why;
    std::vector<TinyGraph> graphs;
    const char* reason;
  } kCases[] = {{"nodes", Many(100, equal_nodes), "equally many nodes"},
                {"edges", Many(100, equal_edges), "equally many edges"},
                {"both", Many(100, [](int i) { return Path(5, i % 5); }), "equally many nodes"}};
  for (const auto& c : kCases) {
    const auto set = ImportGraphs(dir_.path() / c.why, c.graphs);
    spec::TrainOptions options;
    options.model = {.hidden_channels = 8, .num_layers = 1};
    options.batch_size = 9;
    options.epochs = 30;
    options.graph_cache.shapes = spec::Shapes::kExact;
    Recorder told;
    const auto outcome =
        (*runner)->Run({.options = options, .dataset = set, .job_directory = dir_.path() / c.why / "job"}, told);
    ASSERT_TRUE(outcome.ok()) << c.why << ": " << outcome.status();
    EXPECT_TRUE(told.cache.frozen) << c.why;
    EXPECT_EQ(told.cache.freeze_point.source, graphcache::FreezeSource::kSchedule) << c.why;
    EXPECT_EQ(told.cache.freeze_point.freeze_at,
              std::min(told.cache.planned_train_shapes, graphcache::kMaxScheduleFreezeAt))
        << c.why;
    EXPECT_LE(told.cache.of(Mode::kTrain).entries, graphcache::kMaxScheduleFreezeAt + 1) << c.why;
    EXPECT_THAT(told.log, testing::HasSubstr(c.reason)) << c.why;
  }
}

}  // namespace
}  // namespace permafrost::train
