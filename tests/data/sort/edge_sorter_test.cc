#include "data/sort/edge_sorter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stop_token>
#include <vector>

#include "base/random.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

class EdgeSorterTest : public ::testing::Test {
 protected:
  std::vector<FullEdge> RandomEdges(size_t count, uint64_t nodes, uint64_t targets) {
    SplitMix64 random(7, 0);
    std::vector<FullEdge> edges(count);
    for (size_t e = 0; e < count; ++e) {
      edges[e].key = MakeEdgeKey(static_cast<NodeId>(random.Below(targets)), static_cast<NodeId>(random.Below(nodes)));
      edges[e].row = e;
      edges[e].timestamp = static_cast<int64_t>(e) - 5;
      edges[e].weight = static_cast<float>(e);
    }
    return edges;
  }

  // Returns (key, row) of every edge, in the order in which the sorter returns the edges.
  std::vector<std::pair<EdgeKey, uint64_t>> Sort(const std::vector<FullEdge>& edges, uint64_t memory_bytes,
                                                 bool add_inverses, int64_t& runs) {
    EdgeSorter<FullEdge> sorter(
        {.directory = temp_.path(), .memory_bytes = memory_bytes, .add_inverses = add_inverses, .threads = 2}, {});
    for (size_t at = 0; at < edges.size(); at += 1000) {
      EXPECT_TRUE(sorter.Add(std::span(edges).subspan(at, std::min<size_t>(1000, edges.size() - at))).ok());
    }
    EXPECT_TRUE(sorter.Finish().ok());
    runs = sorter.runs_written();
    std::vector<std::pair<EdgeKey, uint64_t>> out;
    for (;;) {
      const auto next = sorter.Next();
      EXPECT_TRUE(next.ok()) << next.status();
      if (!next.ok() || next->empty()) break;
      for (const FullEdge& edge : *next) {
        out.emplace_back(edge.key, edge.row);
        EXPECT_EQ(edge.weight, static_cast<float>(edge.row));
        EXPECT_EQ(edge.timestamp, static_cast<int64_t>(edge.row) - 5);
      }
    }
    return out;
  }

  TempDir temp_;
};

TEST_F(EdgeSorterTest, IsAStableSortWithInversesWhateverTheMemory) {
  const struct {
    const char* why;
    size_t count;
    uint64_t nodes, targets, memory_bytes;
    bool spills;
  } kCases[] = {
      {"nothing", 0, 1, 1, 1 << 24, false},
      {"one node, all self-loops", 5000, 1, 1, 1 << 24, false},
      {"small enough to be compared", 20, 9, 9, 1 << 24, false},
      {"dealt to buckets", 60000, 300, 300, 1 << 26, false},
      {"few edges among many nodes", 60000, 1u << 31, 1u << 31, 1 << 26, false},
      {"nearly all under one node, more than the scratch holds", 60000, 50000, 2, 1 << 23, false},
      {"two runs and more", 60000, 300, 300, 1 << 22, true},
      {"runs merged in several levels", 60000, 300, 300, 1 << 18, true},
      {"runs, one node", 60000, 40000, 1, 1 << 20, true},
  };
  for (const auto& c : kCases) {
    const std::vector<FullEdge> edges = RandomEdges(c.count, c.nodes, c.targets);
    for (const bool add_inverses : {false, true}) {
      std::vector<std::pair<EdgeKey, uint64_t>> want;
      for (const FullEdge& edge : edges) {
        want.emplace_back(edge.key, edge.row);
        if (add_inverses && MajorOf(edge.key) != MinorOf(edge.key)) want.emplace_back(SwapEnds(edge.key), edge.row);
      }
      std::sort(want.begin(), want.end());
      int64_t runs = 0;
      EXPECT_EQ(Sort(edges, c.memory_bytes, add_inverses, runs), want) << c.why;
      EXPECT_EQ(runs > 0, c.spills) << c.why << ": " << runs << " runs";
      EXPECT_TRUE(std::filesystem::is_empty(temp_.path())) << c.why;
    }
  }
}

TEST_F(EdgeSorterTest, KeepsTheOrderOfEqualWeightedEdgesAcrossRuns) {
  EdgeSorter<WeightedEdge> sorter({.directory = temp_.path(), .memory_bytes = 1 << 16, .threads = 2}, {});
  std::vector<WeightedEdge> edges(20000);
  for (size_t e = 0; e < edges.size(); ++e) edges[e] = {.key = MakeEdgeKey(e % 3, 1), .weight = static_cast<float>(e)};
  ASSERT_TRUE(sorter.Add(edges).ok());
  ASSERT_TRUE(sorter.Finish().ok());
  ASSERT_GT(sorter.runs_written(), 8);
  size_t seen = 0;
  float last = -1;
  for (;;) {
    const auto next = sorter.Next();
    ASSERT_TRUE(next.ok());
    if (next->empty()) break;
    for (const WeightedEdge& edge : *next) {
      const size_t of_node = seen++ % 6667;  // the nodes have 6667, 6667 and 6666 edges
      if (of_node == 0) last = -1;
      ASSERT_GT(edge.weight, last);
      last = edge.weight;
    }
  }
  EXPECT_EQ(seen, edges.size());
}

TEST_F(EdgeSorterTest, StopsWhenTheImportIsCancelled) {
  std::stop_source stop;
  EdgeSorter<PlainEdge> sorter({.directory = temp_.path(), .memory_bytes = 1 << 17, .threads = 1}, stop.get_token());
  stop.request_stop();
  const std::vector<PlainEdge> edges(100000);
  EXPECT_EQ(sorter.Add(edges).code(), absl::StatusCode::kCancelled);
}

}  // namespace
}  // namespace permafrost::data
