// Places the rows of a table so that reading a row takes as few pages as possible. Rows lie in groups, one after the
// other, and each group begins at a page. Threads: pure functions.
#pragma once

#include <cstdint>

namespace permafrost::data {

// Disks and page caches read at least this much. Sections of row groups have a checksum for each page.
inline constexpr uint64_t kPageBytes = 4096;

struct RowGroups {
  uint32_t rows = 0;   // of a group; 0: rows follow each other without gaps
  uint32_t bytes = 0;  // from one group to the next, a multiple of kPageBytes; 0 with `rows`
  bool operator==(const RowGroups&) const = default;

  // Returns where a row of `row_bytes` begins, counted from the table's begin.
  uint64_t OffsetOf(uint64_t row, uint64_t row_bytes) const {
    if (rows == 0) return row * row_bytes;
    if (rows == 1) return row * bytes;
    return row / rows * bytes + row % rows * row_bytes;
  }
  // Returns the bytes of a table of `count` rows, without padding after the last row.
  uint64_t TotalBytes(uint64_t count, uint64_t row_bytes) const {
    return count == 0 ? 0 : OffsetOf(count - 1, row_bytes) + row_bytes;
  }
};

// Returns the groups in which no row lies on more pages than its length requires. Each row follows the one before
// directly, or begins at the next page. Returns no groups if more than a fifth of the table would be gaps, or if rows
// without gaps lie this well anyway.
RowGroups GroupsFor(uint64_t row_bytes);

// Returns the pages that a read of one row touches, as a mean over the rows.
double PagesOfRow(const RowGroups& groups, uint64_t row_bytes);

}  // namespace permafrost::data
