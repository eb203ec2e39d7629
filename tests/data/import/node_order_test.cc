#include "data/import/renumbering.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "base/random.h"
#include "temp_dir.h"

namespace permafrost::data {
namespace {

using ::testing::ElementsAre;

// Maps each node to its in-neighbours, sorted. Every edge occurs in both directions.
using Lists = std::map<NodeId, std::vector<NodeId>>;

EdgeLists VisitorOf(const Lists& lists) {
  return [&lists](const auto& visit) {
    for (const auto& [node, sources] : lists) visit(node, sources);
    return absl::OkStatus();
  };
}

// Returns `groups` groups of `size` nodes. Each node has 8 neighbours in its own group and one anywhere. A node's
// group is its remainder modulo `groups`, so that the groups are not contiguous.
Lists Planted(NodeId groups, NodeId size) {
  SplitMix64 random(2, 0);
  const NodeId nodes = groups * size;
  Lists lists;
  const auto join = [&lists](NodeId a, NodeId b) {
    lists[a].push_back(b);
    lists[b].push_back(a);
  };
  for (NodeId node = 0; node < nodes; ++node) {
    for (int i = 0; i < 8; ++i) join(node, node % groups + groups * static_cast<NodeId>(random.Below(size)));
    join(node, static_cast<NodeId>(random.Below(nodes)));
  }
  for (auto& [node, sources] : lists) std::sort(sources.begin(), sources.end());
  return lists;
}

TEST(NodeOrder, ByDegreeFallsAndTiesKeepTheirOrder) {
  EXPECT_THAT(OrderByDegree({1, 5, 0, 5, 2, 1}), ElementsAre(1, 3, 4, 0, 5, 2));
  EXPECT_TRUE(OrderByDegree({}).empty());
}

TEST(NodeOrder, CommunitiesLieTogether) {
  constexpr NodeId kGroups = 40, kSize = 50;
  const Lists lists = Planted(kGroups, kSize);
  OutDegrees degrees(kGroups * kSize);
  for (const auto& [node, sources] : lists) {
    for (const NodeId source : sources) ++degrees[source];
  }
  const auto order = OrderByCommunity(degrees, VisitorOf(lists));
  ASSERT_TRUE(order.ok());
  ASSERT_EQ(std::set<NodeId>(order->begin(), order->end()).size(), degrees.size()) << "each once";
  // Counts the adjacent nodes of the order that share a group. At best all do, except at the ends of groups. By
  // chance it would be one in 40.
  uint64_t same = 0;
  for (size_t i = 1; i < order->size(); ++i) same += (*order)[i] % kGroups == (*order)[i - 1] % kGroups;
  EXPECT_GT(same, order->size() * 9 / 10);
  const auto again = OrderByCommunity(degrees, VisitorOf(lists));
  EXPECT_EQ(*again, *order);
}

TEST(NodeOrder, ACommunityHasAtMostSixtyFourNodes) {
  // A single clique of 200 nodes. Without a bound on its size, all nodes would form one community, ordered by degree.
  Lists lists;
  for (NodeId node = 0; node < 200; ++node) {
    for (NodeId source = 0; source < 200; ++source) lists[node].push_back(source);
  }
  OutDegrees degrees(200);
  for (NodeId node = 0; node < 200; ++node) degrees[node] = node;
  const auto order = OrderByCommunity(degrees, VisitorOf(lists));
  ASSERT_TRUE(order.ok());
  // Degrees fall within a community, so each rise begins another one.
  size_t length = 1, longest = 1;
  for (size_t i = 1; i < order->size(); ++i) {
    length = degrees[(*order)[i]] > degrees[(*order)[i - 1]] ? 1 : length + 1;
    longest = std::max(longest, length);
  }
  EXPECT_LE(longest, 65u) << "64, and perhaps the next one's first";
  EXPECT_GT(longest, 8u);
}

TEST(NodeOrder, ErrorsOfTheEdgesAreTold) {
  const auto order = OrderByCommunity({1, 1}, [](const auto&) { return absl::CancelledError("stop"); });
  EXPECT_EQ(order.status().code(), absl::StatusCode::kCancelled);
}

TEST(RowSpool, GivesRowsBackInTheirNewOrderInAnyMemory) {
  constexpr uint64_t kRows = 5000, kRowBytes = 24;
  TempDir temp;
  std::vector<NodeId> order(kRows);
  for (NodeId row = 0; row < kRows; ++row) order[row] = row;
  SplitMix64 random(9, 0);
  Shuffle(std::span(order), random);
  const Renumbering renumbered = Renumbering::FromOrder(order), none;
  // The three sizes give one part, many parts with buffers, and parts of one row without a buffer.
  for (const uint64_t memory : {uint64_t{1} << 24, uint64_t{9000}, uint64_t{1}}) {
    for (const Renumbering* renumbering : {&renumbered, &none}) {
      auto spool = RowSpool::Create(
          {.directory = temp.path(), .rows = kRows, .row_bytes = kRowBytes, .memory_bytes = memory}, *renumbering, {});
      ASSERT_TRUE(spool.ok());
      for (uint64_t row = 0; row < kRows;) {
        std::vector<uint64_t> rows;  // 1 to 7 rows of three numbers each
        for (const uint64_t end = std::min(kRows, row + 1 + random.Below(7)); row < end; ++row)
          rows.insert(rows.end(), {row, row * row, ~row});
        ASSERT_TRUE(spool->Append(std::as_bytes(std::span(rows))).ok());
      }
      uint64_t next = 0;
      const absl::Status drained = spool->Drain([&](std::span<const std::byte> bytes) {
        EXPECT_EQ(bytes.size() % kRowBytes, 0u);
        for (size_t at = 0; at < bytes.size(); at += kRowBytes, ++next) {
          uint64_t values[3];
          std::memcpy(values, bytes.data() + at, kRowBytes);
          const uint64_t old = renumbering == &none ? next : order[next];
          EXPECT_TRUE(values[0] == old && values[1] == old * old && values[2] == ~old) << next;
        }
        return absl::OkStatus();
      });
      EXPECT_TRUE(drained.ok()) << drained;
      EXPECT_EQ(next, kRows) << memory;
    }
  }
}

}  // namespace
}  // namespace permafrost::data
