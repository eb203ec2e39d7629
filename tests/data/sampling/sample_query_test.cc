#include "data/sampling/sample_query.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "base/status.h"
#include "data/memory_graph.h"
#include "data/sampling/edge_draw.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Sampling = NeighborSamplingOptions;

TEST(SampleQuery, EdgesInRowsOfTheGraph) {
  // The edges are 2 <- 1 <- 0 and 2 <- 0.
  const MemoryGraph graph(3, {{1, 2, 0.5f}, {0, 2, 2}, {0, 1, 3}}, true);
  const auto answer = Sample(graph, {.nodes = {2}, .kind = Sampling{.fan_outs = {5, 5}}}, 2);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_THAT(answer->nodes, ElementsAre(2));
  EXPECT_THAT(answer->nodes_of_hop, ElementsAre(1, 2, 0));
  std::vector<std::array<double, 4>> edges;
  for (const auto& e : answer->edges) edges.push_back({double(e.source), double(e.target), double(e.hop), e.weight});
  using Edge = std::array<double, 4>;
  EXPECT_THAT(edges, ElementsAre(Edge{0, 2, 1, 2}, Edge{1, 2, 1, 0.5}, Edge{0, 1, 2, 3}));
  EXPECT_GE(answer->seconds, 0);
}

TEST(SampleQuery, EdgesBeforeATimeEachInTheSubgraphOfItsSeed) {
  // Node 2 has edges from 0 at time 10 and from 1 at time 20. Node 1 has an edge from 0 at time 5.
  MemoryGraph graph(3, {{0, 1}, {0, 2}, {1, 2}});
  const std::vector<int64_t> times{5, 10, 20};
  graph.view().in.timestamps = Column<int64_t>(std::span<const int64_t>(times));
  SampleQuery query{
      .nodes = {2, 1},
      .seed_time = 20,
      .kind = Sampling{.fan_outs = {5, 5}, .disjoint = true, .temporal = spec::TemporalSampling::kUniform}};
  const auto answer = Sample(graph, query, 1);
  ASSERT_TRUE(answer.ok()) << answer.status();
  using Edge = std::tuple<NodeId, NodeId, int64_t, NodeId>;  // source, target, time, seed
  const auto edges_of = [](const SampleAnswer& of) {
    std::vector<Edge> edges;
    edges.reserve(of.edges.size());
    for (const auto& e : of.edges) edges.emplace_back(e.source, e.target, e.timestamp, e.seed);
    return edges;
  };
  EXPECT_THAT(edges_of(*answer), ElementsAre(Edge{0, 2, 10, 2}, Edge{0, 1, 5, 1}));
  query.seed_time.reset();
  EXPECT_THAT(edges_of(*Sample(graph, query, 1)),
              ElementsAre(Edge{0, 2, 10, 2}, Edge{1, 2, 20, 2}, Edge{0, 1, 5, 1}, Edge{0, 1, 5, 2}));
  // Without seed_time, each node's own time is used if the graph has node times.
  const std::vector<int64_t> own{0, 5, 20};
  graph.view().times = Column<int64_t>(std::span<const int64_t>(own));
  EXPECT_THAT(edges_of(*Sample(graph, query, 1)), ElementsAre(Edge{0, 2, 10, 2}));
  query.kind = Sampling{.fan_outs = {5}};
  query.seed_time = 3;
  EXPECT_THAT(Sample(graph, query, 1).status().message(), HasSubstr("seed_time: is given without temporal"));
  query.kind = WalkOptions{.length = 3};
  EXPECT_THAT(Sample(graph, query, 1).status().message(), HasSubstr("seed_time: is given without temporal"));
}

TEST(SeedTimes, AreOneForAllOrTheNodesOwnOrNone) {
  MemoryGraph graph(3, {{0, 1}});
  const std::vector<NodeId> nodes{2, 0};
  std::vector<int64_t> times{5};
  const auto of = [&](spec::TemporalSampling temporal, std::optional<int64_t> same) {
    EXPECT_TRUE(SeedTimes(temporal, same, graph.view()).Of(nodes, times).ok());
    return times;
  };
  EXPECT_THAT(of(spec::TemporalSampling::kLast, std::nullopt), ElementsAre()) << "the graph has none";
  const std::vector<int64_t> own{7, 8, -9};
  graph.view().times = Column<int64_t>(std::span<const int64_t>(own));
  EXPECT_THAT(of(spec::TemporalSampling::kLast, std::nullopt), ElementsAre(-9, 7));
  EXPECT_THAT(of(spec::TemporalSampling::kLast, 4), ElementsAre(4, 4)) << "one for all goes before";
  EXPECT_THAT(of(spec::TemporalSampling::kNone, std::nullopt), ElementsAre()) << "not temporal";
}

TEST(SampleQuery, NodesAreDrawnBySeedWhereNoneAreGiven) {
  const auto graph = RandomGraph(500, 4000, 1);
  const auto nodes = [&](uint64_t seed, int64_t count) {
    const auto answer = Sample(*graph, {.count = count, .kind = Sampling{.fan_outs = {2}, .seed = seed}}, 1);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer->nodes;
  };
  EXPECT_EQ(nodes(1, 20), nodes(1, 20));
  EXPECT_NE(nodes(1, 20), nodes(2, 20));
  const auto drawn = nodes(3, 400);
  EXPECT_EQ(std::set<NodeId>(drawn.begin(), drawn.end()).size(), 400u);
  EXPECT_EQ(nodes(1, 9000).size(), 500u) << "no more than there are";
}

TEST(SampleQuery, Walks) {
  const MemoryGraph graph(3, {{0, 1}, {1, 2}});
  const auto answer = Sample(graph, {.nodes = {0, 0, 2}, .kind = WalkOptions{.length = 3}}, 1);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->walk_length, 3);
  EXPECT_THAT(answer->walks, ElementsAre(0, 1, 2, 0, 1, 2, 2, 2, 2));
}

TEST(SampleQuery, Refuses) {
  const auto graph = RandomGraph(500, 4000, 1);
  const Sampling sampling{.fan_outs = {2}};
  const struct {
    const char* why;
    SampleQuery query;
    absl::StatusCode code;
    const char* message;
  } kCases[] = {
      {"no count", {.count = 0, .kind = sampling}, absl::StatusCode::kInvalidArgument, "count: 0"},
      {"too many", {.count = 10'001, .kind = sampling}, absl::StatusCode::kInvalidArgument, "count: 10001"},
      {"no row", {.nodes = {7, 500}, .kind = sampling}, absl::StatusCode::kInvalidArgument, "nodes[1]: 500"},
      {"too many nodes",
       {.nodes = std::vector<NodeId>(10'001), .kind = sampling},
       absl::StatusCode::kInvalidArgument,
       "nodes: 10001"},
      {"twice", {.nodes = {7, 7}, .kind = sampling}, absl::StatusCode::kInvalidArgument, "7 stands twice"},
      {"no hops", {.kind = Sampling{}}, absl::StatusCode::kInvalidArgument, "fan_outs"},
      {"no length", {.kind = WalkOptions{.length = 0}}, absl::StatusCode::kInvalidArgument, "length: 0"},
      {"walks that are too long",
       {.count = 2, .kind = WalkOptions{.length = 500'001}},
       absl::StatusCode::kResourceExhausted,
       "walk steps"},
      {"too many edges, never drawn",
       {.count = 400, .kind = Sampling{.fan_outs = {65536, 65536}, .replace = true}},
       absl::StatusCode::kResourceExhausted,
       "edges"},
      {"too many edges in the second hop",
       {.nodes = {0, 1, 2}, .kind = Sampling{.fan_outs = {30, 65536}, .replace = true}},
       absl::StatusCode::kResourceExhausted,
       "edges"},
  };
  for (const auto& c : kCases) {
    const auto answer = Sample(*graph, c.query, 1);
    ASSERT_EQ(answer.status().code(), c.code) << c.why << ": " << answer.status();
    EXPECT_THAT(answer.status().message(), HasSubstr(c.message)) << c.why;
  }
  graph->intact = absl::DataLossError("graph.pfg: was written to");
  EXPECT_EQ(Sample(*graph, {.kind = sampling}, 1).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace permafrost::data
