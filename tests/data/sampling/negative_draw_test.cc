#include "data/sampling/link_sampling.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "data/memory_graph.h"
#include "data/store/other_splits.h"

namespace permafrost::data {
namespace {

std::vector<NodeId> DrawOf(const NegativeDraw& draw, NodeId source, uint64_t key, size_t count) {
  std::vector<NodeId> targets(count);
  const absl::StatusOr<bool> any = draw.Draw(source, key, targets);
  EXPECT_TRUE(any.ok()) << any.status();
  EXPECT_TRUE(any.ok() && *any);
  return targets;
}

TEST(NegativeDraw, IsNeverAnEdgeAndDependsOnItsKeyAlone) {
  const auto graph = RandomGraph(120, 2000, 4);
  for (const spec::NegativeSampling sampling : {spec::NegativeSampling::kUniform, spec::NegativeSampling::kDegree}) {
    const NegativeDraw draw(graph, sampling, 3), again(graph, sampling, 3), other(graph, sampling, 4);
    int64_t equal = 0;
    for (NodeId source = 0; source < 120; ++source) {
      const std::vector<NodeId> targets = DrawOf(draw, source, source, 20);
      bool ok = true;
      for (const NodeId target : targets) {
        EXPECT_NE(target, source);
        EXPECT_FALSE(HasEdge(graph->view(), source, target, ok)) << source << " " << target;
      }
      EXPECT_EQ(targets, DrawOf(again, source, source, 20));
      equal += targets == DrawOf(other, source, source, 20) ? 1 : 0;
      equal += targets == DrawOf(draw, source, source + 1000, 20) ? 1 : 0;
    }
    EXPECT_EQ(equal, 0);
  }
}

// Nodes 0 to 9 have in-degrees 0 to 9. Node 30, for which targets are drawn, has no edges.
TEST(NegativeDraw, OfDegreeIsAsLikelyAsANodeHasEdges) {
  std::vector<TestEdge> edges;
  for (NodeId target = 0; target < 10; ++target)
    for (NodeId k = 0; k < target; ++k) edges.push_back({10 + k, target});
  const auto graph = std::make_shared<MemoryGraph>(31, edges);
  constexpr size_t kDraws = 45'000;
  const std::vector<NodeId> by_degree = DrawOf({graph, spec::NegativeSampling::kDegree, 1}, 30, 0, kDraws);
  const std::vector<NodeId> uniform = DrawOf({graph, spec::NegativeSampling::kUniform, 1}, 30, 0, kDraws);
  std::vector<double> drawn(31), evenly(31);
  for (const NodeId target : by_degree) ++drawn[target];
  for (const NodeId target : uniform) ++evenly[target];
  for (NodeId target = 0; target < 30; ++target) {
    EXPECT_NEAR(drawn[target], target < 10 ? 1000.0 * target : 0, 320) << target;
    EXPECT_NEAR(evenly[target], kDraws / 30.0, 200) << target;
  }
}

TEST(NegativeDraw, FindsTheOneNodeThatASourceHasNoEdgeTo) {
  std::vector<TestEdge> edges;
  for (NodeId target = 0; target < 2000; ++target)
    if (target != 1234) edges.push_back({7, target});
  const auto graph = std::make_shared<MemoryGraph>(2000, edges);
  for (const spec::NegativeSampling sampling : {spec::NegativeSampling::kUniform, spec::NegativeSampling::kDegree}) {
    EXPECT_EQ(DrawOf({graph, sampling, 1}, 7, 5, 3), std::vector<NodeId>(3, 1234));
  }
}

TEST(NegativeDraw, ASourceWithEdgesToAllHasNone) {
  std::vector<TestEdge> edges;
  for (NodeId target = 0; target < 50; ++target) edges.push_back({7, target});
  const auto graph = std::make_shared<MemoryGraph>(50, edges);
  const auto counts = CountNonNeighbors(graph->view(), [] { return true; });
  ASSERT_TRUE(counts.ok());
  const auto shared = std::make_shared<const std::vector<uint32_t>>(*counts);
  for (const spec::NegativeSampling sampling : {spec::NegativeSampling::kUniform, spec::NegativeSampling::kDegree}) {
    for (const auto& known : {decltype(shared)(), shared}) {
      const NegativeDraw draw(graph, sampling, 1, known);
      std::vector<NodeId> targets(3);
      const auto any = draw.Draw(7, 5, targets);
      ASSERT_TRUE(any.ok()) << any.status();
      EXPECT_FALSE(*any);
      EXPECT_EQ(targets, std::vector<NodeId>(3, 7));
      EXPECT_TRUE(*draw.Draw(8, 5, targets));
    }
  }
}

TEST(NegativeDraw, CountsTheNodesWithoutAnEdgeFromEach) {
  // Parallel edges count once, and self-loops do not count.
  const MemoryGraph graph(4, {{0, 1}, {0, 1}, {0, 2}, {0, 3}, {1, 1}, {1, 0}, {3, 2}});
  EXPECT_EQ(*CountNonNeighbors(graph.view(), [] { return true; }), (std::vector<uint32_t>{0, 2, 3, 2}));
  EXPECT_EQ(*NodesLinkedToAll(graph.view(), [] { return true; }), std::vector<NodeId>{0});
  EXPECT_TRUE(absl::IsCancelled(CountNonNeighbors(graph.view(), [] { return false; }).status()));
  EXPECT_TRUE(absl::IsCancelled(NodesLinkedToAll(graph.view(), [] { return false; }).status()));
  const auto random = RandomGraph(40, 900, 4);
  const auto counts = *CountNonNeighbors(random->view(), [] { return true; });
  for (NodeId source = 0; source < 40; ++source) {
    uint32_t without = 0;
    bool ok = true;
    for (NodeId target = 0; target < 40; ++target) {
      without += target != source && !HasEdge(random->view(), source, target, ok) ? 1 : 0;
    }
    EXPECT_EQ(counts[source], without) << source;
  }
}

TEST(NegativeDraw, TellsOfDamage) {
  const auto graph = RandomGraph(300, 2500, 4);
  graph->view().in.neighbors = graph->KeepDamaged(graph->in().neighbors);
  std::vector<NodeId> targets(5);
  EXPECT_TRUE(absl::IsDataLoss(NegativeDraw(graph, spec::NegativeSampling::kUniform, 1).Draw(0, 0, targets).status()));
}

}  // namespace
}  // namespace permafrost::data
