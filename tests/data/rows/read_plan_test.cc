#include "data/rows/row_cache.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace permafrost::data {
namespace {

constexpr uint64_t kPage = kPageBytes;

StoredRows Table(uint64_t row_bytes, RowGroups groups) {
  return {.offset = 7 * kPage,
          .bytes = groups.TotalBytes(1000, row_bytes),
          .rows = 1000,
          .row_bytes = row_bytes,
          .groups = groups};
}

std::vector<std::vector<uint64_t>> Plan(const StoredRows& table, const std::vector<NodeId>& rows, uint64_t gap,
                                        uint64_t most = 64 * kPage) {
  std::vector<std::vector<uint64_t>> plan;  // for each read: its first page in the table, its pages, its rows
  for (const PlannedRead& read : PlanReads(table, rows, gap, most)) {
    EXPECT_EQ(read.offset % kPage, 0u);
    EXPECT_EQ(read.bytes % kPage, 0u);
    plan.push_back({(read.offset - table.offset) / kPage, read.bytes / kPage, read.count});
  }
  return plan;
}

using Reads = std::vector<std::vector<uint64_t>>;

TEST(PlanReads, JoinsWhatIsClose) {
  const StoredRows table = Table(4000, {1, 4096});
  EXPECT_EQ(Plan(table, {}, 0), Reads());
  EXPECT_EQ(Plan(table, {5}, 0), (Reads{{5, 1, 1}}));
  EXPECT_EQ(Plan(table, {5, 6, 8}, 0), (Reads{{5, 2, 2}, {8, 1, 1}}));
  EXPECT_EQ(Plan(table, {5, 6, 8}, kPage), (Reads{{5, 4, 3}}));
  EXPECT_EQ(Plan(table, {5, 6, 9}, kPage), (Reads{{5, 2, 2}, {9, 1, 1}}));
  EXPECT_EQ(Plan(table, {5, 6, 7, 8}, 0, 3 * kPage), (Reads{{5, 3, 3}, {8, 1, 1}})) << "no longer than three pages";
}

TEST(PlanReads, RowsOfOnePageComeTogether) {
  const StoredRows table = Table(400, {10, 4096});
  EXPECT_EQ(Plan(table, {0, 3, 9, 10, 25}, 0), (Reads{{0, 3, 5}}));
  EXPECT_EQ(Plan(table, {0, 31}, 0), (Reads{{0, 1, 1}, {3, 1, 1}}));
}

TEST(PlanReads, ALongRowMayBeLongerThanAReadShouldBe) {
  const StoredRows table = Table(5 * kPage + 1, {});
  EXPECT_EQ(Plan(table, {0, 1, 3}, 0, 2 * kPage), (Reads{{0, 6, 1}, {5, 6, 1}, {15, 6, 1}}));
}

}  // namespace
}  // namespace permafrost::data
