#include "data/store/other_splits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "data/memory_graph.h"

namespace permafrost::data {
namespace {

using NodePair = std::pair<NodeId, NodeId>;

bool KeepGoing() { return true; }

NodePair Unordered(NodeId a, NodeId b) { return {std::min(a, b), std::max(a, b)}; }

std::multiset<NodePair> EdgesOf(const GraphView& view) {
  std::multiset<NodePair> edges;
  for (NodeId target = 0; target < view.nodes; ++target) {
    for (uint64_t e = view.in.offsets[target]; e < view.in.offsets[target + 1]; ++e) {
      edges.emplace(view.in.neighbors[e], target);
    }
  }
  return edges;
}

// Returns a graph with both directions of each edge, self-loops and parallel edges.
std::shared_ptr<MemoryGraph> SymmetricGraph() {
  std::vector<TestEdge> edges;
  for (const auto& [source, target] : EdgesOf(RandomGraph(300, 2500, 4)->view())) {
    const auto weight = static_cast<float>(source + target);
    edges.push_back({source, target, weight});
    if (source != target) edges.push_back({target, source, weight});
  }
  auto graph = std::make_shared<MemoryGraph>(300, std::move(edges), /*weighted=*/true);
  graph->mutable_summary().symmetric = true;
  return graph;
}

// In this test an edge and its inverse have the same time.
TEST(LinkSplitByTime, TheLatestTestAndEveryEdgeStaysInTheMessages) {
  const auto graph = SymmetricGraph();
  const GraphView& view = graph->view();
  std::vector<int64_t> times;
  times.reserve(view.in.neighbors.size());
  for (NodeId target = 0; target < view.nodes; ++target) {
    for (uint64_t e = view.in.offsets[target]; e < view.in.offsets[target + 1]; ++e) {
      times.push_back(static_cast<int64_t>(view.in.neighbors[e]) * target % 97);
    }
  }
  graph->view().in.timestamps = Column<int64_t>(std::span<const int64_t>(times));
  const spec::LinkSplitOptions options{.valid_part = 0.2, .test_part = 0.3, .seed = 5};
  const auto split = SplitLinksByTime(graph, options, KeepGoing);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_EQ(EdgesOf(split->messages->view()), EdgesOf(view));
  EXPECT_EQ(split->messages->view().num_targets, 0);
  std::multiset<NodePair> links;
  for (size_t s = 0; s < 3; ++s) {
    ASSERT_EQ(split->links[s].size(), split->times[s].size());
    ASSERT_FALSE(split->links[s].empty());
    for (size_t i = 0; i < split->links[s].size(); ++i) {
      const Link& link = split->links[s][i];
      ASSERT_EQ(split->times[s][i], int64_t{link.source} * link.target % 97);
      links.insert(Unordered(link.source, link.target));
    }
  }
  std::multiset<NodePair> want;
  for (const auto& [source, target] : EdgesOf(view)) {
    if (source < target) want.emplace(source, target);
  }
  EXPECT_EQ(links, want) << "each edge and its inverse once, parallel ones too";
  const auto [train_least, train_most] = std::ranges::minmax(split->times[0]);
  const auto [valid_least, valid_most] = std::ranges::minmax(split->times[1]);
  EXPECT_LT(train_most, valid_least) << "links of one time are of one split";
  EXPECT_LT(valid_most, std::ranges::min(split->times[2]));
  EXPECT_LE(train_least, train_most);
  const auto all = static_cast<double>(want.size());
  EXPECT_NEAR(static_cast<double>(split->links[2].size()) / all, 0.3, 0.03);
  EXPECT_NEAR(static_cast<double>(split->links[1].size()) / all, 0.2, 0.03);
  EXPECT_GE(static_cast<double>(split->links[0].size()) / all, 0.5);

  const auto again = SplitLinksByTime(graph, options, KeepGoing);
  EXPECT_EQ(again->links, split->links);
  EXPECT_TRUE(absl::IsCancelled(SplitLinksByTime(graph, options, [] { return false; }).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(SplitLinksByTime(SymmetricGraph(), options, KeepGoing).status()))
      << "no timestamps";
}

TEST(LinkSplit, PartsTheLinksOfASymmetricGraphAndHoldsOutBothDirections) {
  const auto graph = SymmetricGraph();
  const spec::LinkSplitOptions options{.valid_part = 0.2, .test_part = 0.3, .seed = 5};
  const auto split = SplitLinks(graph, options, KeepGoing);
  ASSERT_TRUE(split.ok()) << split.status();
  const std::multiset<NodePair> all = EdgesOf(graph->view()), left = EdgesOf(split->messages->view());
  std::set<NodePair> expected, found;
  for (const auto& [a, b] : all)
    if (a != b) expected.insert(Unordered(a, b));
  int64_t rising = 0;
  for (size_t s = 0; s < 3; ++s) {
    for (const Link& link : split->links[s]) {
      EXPECT_TRUE(found.insert(Unordered(link.source, link.target)).second) << "a link stands twice";
      EXPECT_EQ(SplitOf(options, link.source, link.target), static_cast<Split>(s));
      EXPECT_EQ(SplitOf(options, link.target, link.source), static_cast<Split>(s));
      EXPECT_EQ(left.contains({link.source, link.target}), s == 0);
      EXPECT_EQ(left.contains({link.target, link.source}), s == 0);
      rising += link.source < link.target ? 1 : 0;
    }
  }
  EXPECT_EQ(found, expected);
  // Both directions are equally likely.
  EXPECT_NEAR(static_cast<double>(rising) / static_cast<double>(found.size()), 0.5, 0.06);
  EXPECT_NEAR(static_cast<double>(split->links[1].size()) / static_cast<double>(found.size()), 0.2, 0.04);
  EXPECT_NEAR(static_cast<double>(split->links[2].size()) / static_cast<double>(found.size()), 0.3, 0.04);
  // The remaining parallel edges, self-loops and weights are unchanged.
  for (const NodePair& edge : left) EXPECT_EQ(left.count(edge), all.count(edge));
  for (const NodePair& edge : all) {
    if (edge.first == edge.second) {
      EXPECT_TRUE(left.contains(edge));
    }
  }
  const GraphView& view = split->messages->view();
  ASSERT_EQ(view.in.weights.size(), view.edges);
  for (NodeId target = 0; target < view.nodes; ++target) {
    for (uint64_t e = view.in.offsets[target]; e < view.in.offsets[target + 1]; ++e) {
      ASSERT_EQ(view.in.weights[e], static_cast<float>(view.in.neighbors[e] + target));
    }
  }
  EXPECT_EQ(split->messages->summary().edges, std::ssize(left));
}

// The remaining edges keep their rows of features, if the caller asks for features.
TEST(LinkSplit, FeaturesOfEdgesStayWithThem) {
  const auto graph = SymmetricGraph();
  GraphView& view = graph->view();
  const spec::LinkSplitOptions options{.valid_part = 0.2, .test_part = 0.3, .seed = 5};
  graph->mutable_summary().edge_features = {.type = DataType::kFloat32, .width = 1, .min = {}, .max = {}};
  view.edge_features.width = 1;
  for (const bool ids : {false, true}) {
    std::vector<uint64_t> rows;
    for (NodeId target = 0; target < view.nodes; ++target) {
      for (uint64_t e = view.in.offsets[target]; e < view.in.offsets[target + 1]; ++e) {
        rows.push_back(uint64_t{view.in.neighbors[e]} * 1000 + target);
      }
    }
    if (ids) view.in.edge_ids = graph->Keep(rows);
    const auto split = SplitLinks(graph, options, KeepGoing, /*edge_features=*/true);
    ASSERT_TRUE(split.ok()) << split.status();
    const GraphView& left = split->messages->view();
    EXPECT_EQ(left.edge_features.width, 1);
    EXPECT_EQ(split->messages->summary().edge_features.width, 1);
    ASSERT_EQ(left.in.edge_ids.size(), left.edges);
    for (NodeId target = 0; target < left.nodes; ++target) {
      for (uint64_t e = left.in.offsets[target]; e < left.in.offsets[target + 1]; ++e) {
        const uint64_t row = left.in.edge_ids[e], want = uint64_t{left.in.neighbors[e]} * 1000 + target;
        ASSERT_EQ(ids ? row : rows[row], want);
      }
    }
    const auto without = SplitLinks(graph, options, KeepGoing);
    EXPECT_EQ(without->messages->view().edge_features.width, 0);
    EXPECT_TRUE(without->messages->view().in.edge_ids.empty());
  }
  EXPECT_EQ(LinkSplitBytes(graph->summary(), true) - LinkSplitBytes(graph->summary()),
            8 * static_cast<uint64_t>(graph->summary().edges));
}

TEST(LinkSplit, OfADirectedGraphEachDirectionIsALink) {
  const auto graph = RandomGraph(300, 2500, 4);
  const auto split = SplitLinks(graph, {.valid_part = 0.2, .test_part = 0.3, .seed = 5}, KeepGoing);
  ASSERT_TRUE(split.ok()) << split.status();
  const std::multiset<NodePair> all = EdgesOf(graph->view());
  std::set<NodePair> expected, found;
  for (const NodePair& edge : all)
    if (edge.first != edge.second) expected.insert(edge);
  for (const auto& links : split->links)
    for (const Link& link : links) EXPECT_TRUE(found.insert({link.source, link.target}).second);
  EXPECT_EQ(found, expected);
  // If only one direction of a link were held out, the other would give it away.
  const std::multiset<NodePair> left = EdgesOf(split->messages->view());
  for (size_t s = 1; s < 3; ++s) {
    for (const Link& link : split->links[s]) EXPECT_FALSE(left.contains({link.target, link.source}));
  }
}

TEST(LinkSplit, DependsOnTheSeedAndThePairAlone) {
  const auto graph = SymmetricGraph();
  const spec::LinkSplitOptions options{.valid_part = 0.2, .test_part = 0.3, .seed = 5};
  spec::LinkSplitOptions other = options;
  other.seed = 6;
  EXPECT_EQ(SplitLinks(graph, options, KeepGoing)->links, SplitLinks(graph, options, KeepGoing)->links);
  EXPECT_NE(SplitLinks(graph, options, KeepGoing)->links, SplitLinks(graph, other, KeepGoing)->links);
}

TEST(LinkSplit, StopsWhereItIsAsked) {
  EXPECT_TRUE(absl::IsCancelled(SplitLinks(SymmetricGraph(), {}, [] { return false; }).status()));
}

TEST(LinkSplit, TellsOfDamage) {
  const auto graph = RandomGraph(300, 2500, 4);
  graph->view().in.neighbors = graph->KeepDamaged(graph->in().neighbors);
  EXPECT_TRUE(absl::IsDataLoss(SplitLinks(graph, {}, KeepGoing).status()));
  bool ok = true;
  HasEdge(graph->view(), 0, 0, ok);
  EXPECT_FALSE(ok);
}

// Returns a graph whose source gives links. Some of them are no edges, and 2-3 is in both training and test.
std::shared_ptr<MemoryGraph> GraphWithLinks() {
  std::vector<TestEdge> edges;
  for (const auto& [a, b] : {NodePair{0, 1}, {0, 2}, {1, 2}, {2, 3}, {3, 4}, {0, 4}}) {
    edges.push_back({a, b});
    edges.push_back({b, a});
  }
  edges.push_back({2, 2});
  auto graph = std::make_shared<MemoryGraph>(6, std::move(edges));
  graph->view().given_links.links = {graph->Keep<NodeId>({1, 0, 2, 3, 5, 0}), graph->Keep<NodeId>({2, 1}),
                                     graph->Keep<NodeId>({4, 3, 2, 3, 5, 1, 2, 2})};
  graph->mutable_summary().links = {.given = true, .parts = {{{3, 0, 0}, {1, 0, 0}, {4, 0, 0}}}};
  return graph;
}

TEST(GivenLinks, StayInTheirOrderAndHeldOutOnesPassNoMessagesEitherWay) {
  const auto graph = GraphWithLinks();
  const auto split = TakeGivenLinks(graph, KeepGoing);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(split->links[0], testing::ElementsAre(Link{1, 0}, Link{2, 3}, Link{5, 0}));
  EXPECT_THAT(split->links[1], testing::ElementsAre(Link{2, 1}));
  EXPECT_THAT(split->links[2], testing::ElementsAre(Link{4, 3}, Link{2, 3}, Link{5, 1}, Link{2, 2}));
  EXPECT_THAT(EdgesOf(split->messages->view()),
              testing::UnorderedElementsAre(NodePair{0, 1}, NodePair{1, 0}, NodePair{0, 2}, NodePair{2, 0},
                                            NodePair{0, 4}, NodePair{4, 0}, NodePair{2, 2}));
  EXPECT_EQ(split->messages->summary().edges, 7);
  EXPECT_TRUE(split->messages->summary().links.given) << "what a job needs in memory is computed of it";
  EXPECT_TRUE(split->times[0].empty());
}

TEST(GivenLinks, StopAndTellOfDamage) {
  const auto graph = GraphWithLinks();
  EXPECT_TRUE(absl::IsCancelled(TakeGivenLinks(graph, [] { return false; }).status()));
  graph->view().given_links.links[1] = graph->KeepDamaged(std::vector<NodeId>{2, 1});
  EXPECT_TRUE(absl::IsDataLoss(TakeGivenLinks(graph, KeepGoing).status()));
}

TEST(HasEdge, FindsEveryEdgeAndNoOther) {
  const auto graph = RandomGraph(120, 700, 4);
  const std::multiset<NodePair> all = EdgesOf(graph->view());
  bool ok = true;
  for (NodeId a = 0; a < 120; ++a)
    for (NodeId b = 0; b < 120; ++b) ASSERT_EQ(HasEdge(graph->view(), a, b, ok), all.contains({a, b})) << a << " " << b;
  EXPECT_TRUE(ok);
}

}  // namespace
}  // namespace permafrost::data
