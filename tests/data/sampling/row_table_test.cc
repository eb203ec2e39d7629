#include "data/sampling/row_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unordered_map>

#include "base/random.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;

TEST(RowTable, RowsAreInTheOrderOfFinding) {
  RowTable table;
  std::vector<NodeId> nodes;
  std::vector<int64_t> rows(5);
  table.Clear(5);
  table.Relabel(std::vector<NodeId>{70, 3, 70, UINT32_MAX - 1, 3}, nodes, rows);
  EXPECT_THAT(rows, ElementsAre(0, 1, 0, 2, 1));
  EXPECT_THAT(nodes, ElementsAre(70, 3, UINT32_MAX - 1));
  rows.resize(2);
  table.Relabel(std::vector<NodeId>{4, 70}, nodes, rows);
  EXPECT_THAT(rows, ElementsAre(3, 0));
  EXPECT_THAT(nodes, ElementsAre(70, 3, UINT32_MAX - 1, 4));
  table.Clear(2);
  table.Relabel(std::vector<NodeId>{4, 70}, nodes, rows);
  EXPECT_THAT(rows, ElementsAre(0, 1)) << "cleared";
  EXPECT_THAT(nodes, ElementsAre(4, 70));
}

// Against the standard library's map, over ids that lie close together, far apart, and in steps of a power of two.
TEST(RowTable, AgreesWithAMap) {
  for (const uint64_t step : {uint64_t{1}, uint64_t{4096}, uint64_t{1} << 20}) {
    RowTable table;
    std::unordered_map<NodeId, int64_t> map;
    std::vector<NodeId> nodes, found;
    SplitMix64 random(step, 1);
    table.Clear(1);
    for (const size_t count : {1, 30, 1000, 20000}) {
      found.resize(count);
      for (NodeId& node : found) node = static_cast<NodeId>(random.Below(2 * count) * step % (UINT32_MAX - 1));
      std::vector<int64_t> rows(count), want;
      table.Reserve(nodes.size() + count);
      table.Relabel(found, nodes, rows);
      for (const NodeId node : found)
        want.push_back(map.try_emplace(node, static_cast<int64_t>(map.size())).first->second);
      ASSERT_EQ(rows, want) << "steps of " << step;
      ASSERT_EQ(nodes.size(), map.size());
      for (size_t row = 0; row < nodes.size(); ++row) ASSERT_EQ(map.at(nodes[row]), static_cast<int64_t>(row));
    }
  }
}

}  // namespace
}  // namespace permafrost::data
