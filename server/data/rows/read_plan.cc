#include "data/rows/read_plan.h"

namespace permafrost::data {

PageSpan PagesOf(const StoredRows& table, uint64_t row) {
  const uint64_t begin = table.groups.OffsetOf(row, table.row_bytes);
  return {.first = begin / kPageBytes, .last = (begin + table.row_bytes - 1) / kPageBytes};
}

std::vector<PlannedRead> PlanReads(const StoredRows& table, std::span<const NodeId> rows, uint64_t gap_bytes,
                                   uint64_t most_bytes) {
  const uint64_t gap_pages = gap_bytes / kPageBytes, most_pages = most_bytes / kPageBytes;
  std::vector<PlannedRead> reads;
  PageSpan pages;  // of the last read
  for (size_t i = 0; i < rows.size(); ++i) {
    const PageSpan row = PagesOf(table, rows[i]);
    // Rows of one page, or of two that meet, have a gap below 0.
    const bool near = !reads.empty() && row.first <= pages.last + 1 + gap_pages;
    if (near && row.last - pages.first < most_pages) {
      pages.last = row.last;
      ++reads.back().count;
    } else {
      pages = row;
      reads.push_back({.first = static_cast<uint32_t>(i), .count = 1});
    }
    reads.back().offset = table.offset + pages.first * kPageBytes;
    reads.back().bytes = static_cast<uint32_t>((pages.last + 1 - pages.first) * kPageBytes);
  }
  return reads;
}

}  // namespace permafrost::data
