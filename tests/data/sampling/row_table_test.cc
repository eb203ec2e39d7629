#include "data/sampling/row_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unordered_map>

#include "base/random.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kMany = UINT32_MAX;  // so many nodes that the table does not cover all of them

TEST(RowTable, RowsAreInTheOrderOfFinding) {
  for (const uint64_t graph_nodes : {uint64_t{100}, kMany}) {
    SCOPED_TRACE(graph_nodes);
    const auto last = static_cast<NodeId>(graph_nodes - 1);
    RowTable table(graph_nodes);
    std::vector<NodeId> nodes;
    std::vector<int64_t> rows(5);
    table.Relabel(std::vector<NodeId>{70, 3, 70, last, 3}, nodes, rows);
    EXPECT_THAT(rows, ElementsAre(0, 1, 0, 2, 1));
    ASSERT_EQ(table.size(), 3u);
    nodes.resize(3);
    EXPECT_THAT(nodes, ElementsAre(70, 3, last));
    rows.resize(2);
    table.Relabel(std::vector<NodeId>{4, 70}, nodes, rows);
    EXPECT_THAT(rows, ElementsAre(3, 0));
    ASSERT_EQ(table.size(), 4u);
    nodes.resize(4);
    EXPECT_THAT(nodes, ElementsAre(70, 3, last, 4));
    table.Clear();
    EXPECT_EQ(table.size(), 0u);
    table.Relabel(std::vector<NodeId>{4, 70}, nodes, rows);
    EXPECT_THAT(rows, ElementsAre(0, 1)) << "cleared";
    EXPECT_THAT(nodes, ElementsAre(4, 70, last, 4)) << "longer than the table: nothing is made smaller";
  }
}

TEST(RowTable, BeyondTheMostRowsOnlyKnownNodesHaveOne) {
  for (const uint64_t graph_nodes : {uint64_t{100}, kMany}) {
    SCOPED_TRACE(graph_nodes);
    RowTable table(graph_nodes);
    std::vector<NodeId> nodes;
    std::vector<int64_t> rows(6);
    table.RelabelWithin(3, std::vector<NodeId>{70, 3, 70, 9, 8, 3}, nodes, rows);
    EXPECT_THAT(rows, ElementsAre(0, 1, 0, 2, RowTable::kNoRow, 1));
    EXPECT_EQ(table.size(), 3u);
    EXPECT_THAT(nodes, ElementsAre(70, 3, 9));
    rows.resize(2);
    table.RelabelWithin(3, std::vector<NodeId>{8, 9}, nodes, rows);
    EXPECT_THAT(rows, ElementsAre(RowTable::kNoRow, 2));
    table.RelabelWithin(2, std::vector<NodeId>{9, 8}, nodes, rows);
    EXPECT_THAT(rows, ElementsAre(2, RowTable::kNoRow)) << "those that are there stay";
    // If the bound is not reached, RelabelWithin does the same as Relabel.
    std::vector<int64_t> free(2);
    table.RelabelWithin(1000, std::vector<NodeId>{8, 5}, nodes, rows);
    RowTable other(graph_nodes);
    std::vector<NodeId> other_nodes;
    std::vector<int64_t> first(3);
    other.Relabel(std::vector<NodeId>{70, 3, 9}, other_nodes, first);
    other.Relabel(std::vector<NodeId>{8, 5}, other_nodes, free);
    EXPECT_EQ(rows, free);
  }
}

// Compares the table with std::map. The ids are adjacent, far apart, or a power of two apart. Some cases find more
// rows than the table has numbers left for.
TEST(RowTable, AgreesWithAMap) {
  const struct {
    const char* why;
    uint64_t graph_nodes, step;
    uint32_t first;
  } kCases[] = {
      {"a table of all nodes", RowTable::kDirectNodes, 1, 1},
      {"all nodes, far apart", RowTable::kDirectNodes, 4096, 1},
      {"a table of all nodes whose numbers end", RowTable::kDirectNodes, 1, UINT32_MAX - 30'000},
      {"numbers that end at the first rows", 100'000, 1, UINT32_MAX - 20},
      {"one node more than is kept of all", RowTable::kDirectNodes + 1, 1, 1},
      {"pages apart", kMany, 4096, 1},
      {"a power of two apart", kMany, uint64_t{1} << 20, 1},
      {"numbers that end", kMany, 4096, UINT32_MAX - 30'000},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.why);
    RowTable table(c.graph_nodes, c.first);
    SplitMix64 random(c.step, 1);
    for (int batch = 0; batch < 4; ++batch) {
      std::unordered_map<NodeId, int64_t> map;
      std::vector<NodeId> nodes, found;
      table.Clear();
      for (const size_t count : {1, 30, 1000, 20000}) {
        found.resize(count);
        for (NodeId& node : found) node = static_cast<NodeId>(random.Below(2 * count) * c.step % c.graph_nodes);
        std::vector<int64_t> rows(count), want;
        table.Relabel(found, nodes, rows);
        for (const NodeId node : found)
          want.push_back(map.try_emplace(node, static_cast<int64_t>(map.size())).first->second);
        ASSERT_EQ(rows, want) << "batch " << batch;
        ASSERT_EQ(table.size(), map.size());
        for (size_t row = 0; row < map.size(); ++row) ASSERT_EQ(map.at(nodes[row]), static_cast<int64_t>(row));
      }
    }
  }
}

}  // namespace
}  // namespace permafrost::data
