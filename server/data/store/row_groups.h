// Places the rows of a table so that a row is read with as few pages as can be: in groups, each beginning at a page,
// rows one after the other within a group. Threads: pure functions.
#pragma once

#include <cstdint>

namespace permafrost::data {

// Disks and page caches read at least so much, and sections of row groups have a checksum for each.
inline constexpr uint64_t kPageBytes = 4096;

struct RowGroups {
  uint32_t rows = 0;   // of a group; 0: rows follow each other without gaps
  uint32_t bytes = 0;  // from one group to the next, a multiple of kPageBytes; 0 with `rows`
  bool operator==(const RowGroups&) const = default;

  // Returns where a row of `row_bytes` begins, from the table's begin on.
  uint64_t OffsetOf(uint64_t row, uint64_t row_bytes) const {
    if (rows == 0) return row * row_bytes;
    if (rows == 1) return row * bytes;
    return row / rows * bytes + row % rows * row_bytes;
  }
  // The bytes of a table of so many rows; nothing follows the last row.
  uint64_t TotalBytes(uint64_t count, uint64_t row_bytes) const {
    return count == 0 ? 0 : OffsetOf(count - 1, row_bytes) + row_bytes;
  }
};

// The groups in which no row lies on more pages than a row of its length must, each row being put behind the one before
// or else at the next page. None where more than a fifth of the table would be gaps, and where rows
// without gaps lie so anyway.
RowGroups GroupsFor(uint64_t row_bytes);

// Pages that a read of one row touches, a mean over the rows.
double PagesOfRow(const RowGroups& groups, uint64_t row_bytes);

}  // namespace permafrost::data
