#include "train/planning/block_rungs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace permafrost::train {
namespace {

using data::BlockSizes;

BlockSizes Sizes(std::vector<int64_t> nodes, int64_t edges, int64_t nonzeros = 0) {
  return {.nodes = std::move(nodes), .edges = edges, .nonzeros = nonzeros};
}

// Returns the sizes of full batches of 64 seeds, with a standard deviation of 1 %.
std::vector<BlockSizes> Probes(int count) {
  std::mt19937 random(5);
  std::normal_distribution<double> scatter(1, 0.01);
  std::vector<BlockSizes> probes;
  for (int i = 0; i < count; ++i) {
    const auto part = [&](double mean) { return static_cast<int64_t>(mean * scatter(random)); };
    probes.push_back(Sizes({64, part(600), part(4000)}, part(5000), part(90000)));
  }
  return probes;
}
const BlockSizes kBound = Sizes({64, 960, 9600}, 10560, 400000);

TEST(BlockRungs, FormAChainThatHoldsEveryProbeAndTheBound) {
  const std::vector<BlockSizes> probes = Probes(32);
  const BlockRungs plan = BlockRungs::Plan(probes, kBound);
  ASSERT_GE(plan.num_planned(), 2);
  ASSERT_LE(plan.num_planned(), BlockRungs::kMaxRungs);
  EXPECT_EQ(std::ssize(plan.PlannedShapes()), plan.num_planned());
  for (size_t i = 1; i < plan.rungs().size(); ++i) {
    EXPECT_TRUE(plan.rungs()[i].Holds(plan.rungs()[i - 1])) << i;
    EXPECT_FALSE(plan.rungs()[i - 1].Holds(plan.rungs()[i])) << i;
    // The cache compares keys, so a rung that holds another must also do so by its key.
    EXPECT_TRUE(plan.rungs()[i].shape().Holds(plan.rungs()[i - 1].shape())) << i;
  }
  EXPECT_EQ(plan.rungs().back(), LeastPadded(kBound));
  const BlockSizes& top = plan.rungs()[static_cast<size_t>(plan.num_planned() - 1)];
  for (const BlockSizes& probe : probes) EXPECT_TRUE(top.Holds(LeastPadded(probe)));
}

TEST(BlockRungs, OtherBatchesOfTheKindFitThePlannedOnesWithLittlePadding) {
  const BlockRungs plan = BlockRungs::Plan(Probes(32), kBound);
  const BlockSizes& top = plan.rungs()[static_cast<size_t>(plan.num_planned() - 1)];
  int64_t real = 0, padded = 0;
  for (const BlockSizes& batch : Probes(1000)) {
    ASSERT_TRUE(top.Holds(LeastPadded(batch)));
    const BlockSizes& rung = plan.Fit(batch);
    ASSERT_TRUE(rung.Holds(LeastPadded(batch)));
    real += batch.total_nodes() + batch.edges;
    padded += rung.total_nodes() + rung.edges;
  }
  EXPECT_LT(static_cast<double>(padded), 1.04 * static_cast<double>(real));
}

// Rungs chosen for only the 32 probes would promise 0.016 of padding, and add 0.056 on average over such plans.
TEST(BlockRungs, SizesAlikePromiseThePaddingThatComes) {
  // With few seeds, sizes have a standard deviation of 10 %.
  std::mt19937 random(7);
  std::normal_distribution<double> scatter(1, 0.1);
  const auto batches = [&](int count) {
    std::vector<BlockSizes> sizes;
    for (int i = 0; i < count; ++i) {
      const double scale = scatter(random);
      const auto part = [scale](double mean) { return static_cast<int64_t>(mean * scale); };
      sizes.push_back(Sizes({64, part(600), part(4000)}, part(5000)));
    }
    return sizes;
  };
  const auto added = [](const BlockRungs& plan, const std::vector<BlockSizes>& sizes) {
    double real = 0, padded = 0;
    for (const BlockSizes& batch : sizes) {
      const BlockSizes& rung = plan.Fit(batch);
      real += static_cast<double>(batch.total_nodes() + batch.edges);
      padded += static_cast<double>(rung.total_nodes() + rung.edges);
    }
    return padded / real - 1;
  };
  double told = 0, seen = 0;
  constexpr int kPlans = 50;
  for (int i = 0; i < kPlans; ++i) {
    const std::vector<BlockSizes> probes = batches(32);
    const BlockRungs plan = BlockRungs::Plan(probes, kBound);
    const std::vector<BlockSizes> alike = BlockRungs::Alike(probes, kBound);
    ASSERT_EQ(std::ssize(alike), 32 * BlockRungs::kAlike);
    EXPECT_TRUE(std::ranges::any_of(probes, [&](const BlockSizes& p) {
      return plan.rungs().front().Holds(LeastPadded(p));
    })) << "the lowest rung is captured by a probe";
    told += added(plan, alike) / kPlans;
    seen += added(plan, batches(1000)) / kPlans;
  }
  EXPECT_NEAR(told, seen, 0.01);
  EXPECT_LT(seen, 0.045);
}

TEST(BlockRungs, ABatchAboveThePlannedOnesFitsOneOfThoseAbove) {
  const BlockRungs plan = BlockRungs::Plan(Probes(8), kBound);
  for (const BlockSizes& batch : {Sizes({64, 900, 4000}, 5000, 90000), Sizes({64, 700, 8000}, 9000, 90000), kBound}) {
    const BlockSizes& rung = plan.Fit(batch);
    EXPECT_TRUE(rung.Holds(LeastPadded(batch)));
    EXPECT_EQ(plan.Find(rung.shape()), &rung);
  }
  EXPECT_EQ(plan.Find(BatchShape{1, 2, 3}), nullptr);
}

TEST(BlockRungs, Degenerate) {
  const BlockRungs alike = BlockRungs::Plan({kBound, kBound}, kBound);
  EXPECT_EQ(alike.rungs().size(), 1U) << "every batch is as large as the bound";
  const BlockSizes lonely = Sizes({8, 0}, 0);
  const BlockRungs isolated = BlockRungs::Plan({lonely}, Sizes({8, 32}, 40));
  EXPECT_EQ(isolated.rungs().front(), LeastPadded(lonely)) << "seeds without neighbours";
  EXPECT_EQ(isolated.rungs().back(), LeastPadded(Sizes({8, 32}, 40)));
}

TEST(BlockRungs, APartialBatchGetsARungBelow) {
  BlockRungs plan = BlockRungs::Plan(Probes(8), kBound);
  const int64_t planned = plan.num_planned();
  const BlockSizes part = Sizes({10, 90, 700}, 800, 15000);
  plan.AddPartial(BlockRungs::Plan({part}, Sizes({10, 150, 1500}, 1650, 400000)));
  EXPECT_EQ(plan.num_planned(), planned + 1);
  EXPECT_EQ(plan.Fit(part), plan.rungs().front());
  EXPECT_EQ(plan.rungs().front().nodes.front(), 10);
  plan.AddPartial(BlockRungs::Plan({Sizes({63, 590, 3990}, 4990, 89000)}, Sizes({63, 945, 9450}, 10395, 400000)));
  EXPECT_EQ(plan.num_planned(), planned + 1) << "no smaller than the lowest";
  // A batch of few seeds may find more nodes in a hop than a batch of many leaves.
  const BlockSizes more = Sizes({10, 900, 8000}, 9000, 200'000);
  ASSERT_FALSE(plan.rungs()[static_cast<size_t>(planned)].Holds(more));
  plan.AddPartial(BlockRungs::Plan({more}, more));
  EXPECT_TRUE(plan.rungs()[static_cast<size_t>(plan.num_planned() - 1)].Holds(plan.Fit(more)));
  EXPECT_FALSE(plan.rungs()[static_cast<size_t>(plan.num_planned() - 2)].Holds(plan.Fit(more)));
  BlockRungs none;
  none.AddPartial(BlockRungs::Plan({part}, Sizes({10, 150, 1500}, 1650, 400000)));
  EXPECT_EQ(none.Fit(part).nodes.front(), 10) << "an epoch of one partial batch";
}

TEST(BlockBound, HoldsWhateverIsDrawn) {
  data::GraphSummary graph;
  graph.nodes = 2000;
  graph.edges = 50'000;
  graph.max_degree = 300;
  graph.node_feature_nonzeros = 77;
  const struct {
    const char* why;
    data::NeighborSamplingOptions sampling;
    int64_t seeds;
    BlockSizes want;
  } kCases[] = {
      {"fan-outs", {.fan_outs = {3, 2}}, 10, Sizes({10, 30, 60}, 90, 77)},
      {"fewer seeds may find more than so many leave", {.fan_outs = {25}}, 1024, Sizes({1024, 2000}, 25'600, 77)},
      {"no more edges than there are", {.fan_outs = {60}}, 1024, Sizes({1024, 2000}, 50'000, 77)},
      {"with replacement there may be more",
       {.fan_outs = {60}, .replace = true},
       1024,
       Sizes({1024, 2000}, 61'440, 77)},
      {"all neighbours", {.fan_outs = {-1}}, 5, Sizes({5, 1500}, 1500, 77)},
      {"disjoint: so many blocks of one seed",
       {.fan_outs = {3, 2}, .disjoint = true},
       1024,
       Sizes({1024, 3072, 6144}, 9216, int64_t{1024} * 77)},
      {"disjoint, each up to the whole graph",
       {.fan_outs = {-1, -1}, .disjoint = true},
       1024,
       Sizes({1024, int64_t{1024} * 300, int64_t{1024} * 2000}, int64_t{1024} * 50'300, int64_t{1024} * 77)},
      {"labor may draw all", {.fan_outs = {3}, .sampler = spec::SamplerKind::kLabor}, 5, Sizes({5, 1500}, 1500, 77)},
      {"no more edges than the budget has", {.fan_outs = {3, 2}, .max_edges = 50}, 10, Sizes({10, 30, 50}, 50, 77)},
      {"no more nodes in a hop than the budget has",
       {.fan_outs = {3, 2}, .max_nodes = 25},
       10,
       Sizes({10, 25, 25}, 90, 77)},
      {"a budget of all seeds together",
       {.fan_outs = {3, 2}, .disjoint = true, .max_nodes = 2000, .max_edges = 5000},
       1024,
       Sizes({1024, 2000, 2000}, 5000, int64_t{1024} * 77)},
  };
  for (const auto& c : kCases) EXPECT_EQ(BlockBound(c.sampling, c.seeds, graph), c.want) << c.why;
  // Means are made from the edges of all hops.
  const auto bound = [&](data::NeighborSamplingOptions sampling, int64_t seeds) {
    sampling.last_hop_apart = true;
    return BlockBound(sampling, seeds, graph, /*means_elsewhere=*/true);
  };
  EXPECT_EQ(bound({.fan_outs = {3, 2}}, 10), Sizes({10, 30}, 30, 90));
  EXPECT_EQ(bound({.fan_outs = {3, -1}}, 10), Sizes({10, 30}, 30, 9030));
  EXPECT_EQ(bound({.fan_outs = {3, -1}}, 100), Sizes({100, 300}, 300, 50'300)) << "no more edges than there are";
  EXPECT_EQ(bound({.fan_outs = {3, 2}, .disjoint = true}, 1024), Sizes({1024, 3072}, 3072, 9216));
  EXPECT_EQ(bound({.fan_outs = {3, 2}, .max_edges = 50}, 10), Sizes({10, 30}, 30, 50));
  graph.nodes = 4'000'000'000;
  graph.edges = int64_t{1} << 40;
  graph.max_degree = 4'000'000'000;
  const BlockSizes huge =
      BlockBound({.fan_outs = std::vector<int64_t>(16, -1), .disjoint = true}, int64_t{65'536} * 1'002, graph);
  EXPECT_GT(huge.total_nodes(), 0) << "adds up without wrapping";
  EXPECT_GT(huge.edges, 0);
}

}  // namespace
}  // namespace permafrost::train
