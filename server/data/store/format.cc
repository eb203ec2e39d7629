#include "data/store/format.h"

#include <cstdint>
#include <numeric>

namespace permafrost::data {
namespace {

// At most 1/kMostGaps of a group's bytes may be gaps.
constexpr uint64_t kMostGaps = 5;

uint64_t PagesFrom(uint64_t begin, uint64_t bytes) {
  return (begin + bytes + kPageBytes - 1) / kPageBytes - begin / kPageBytes;
}

}  // namespace

RowGroups GroupsFor(uint64_t row_bytes) {
  if (row_bytes == 0 || row_bytes > UINT32_MAX / 2) return {};
  const uint64_t least = PagesFrom(0, row_bytes);
  uint64_t rows = 0, end = 0;
  while (PagesFrom(end, row_bytes) == least) {
    ++rows;
    end += row_bytes;
    if (end % kPageBytes == 0) return {};  // the placement repeats from here, so it needs no gaps
  }
  const uint64_t bytes = (end + kPageBytes - 1) / kPageBytes * kPageBytes;
  if ((bytes - end) * kMostGaps > bytes || bytes > UINT32_MAX) return {};
  return {.rows = static_cast<uint32_t>(rows), .bytes = static_cast<uint32_t>(bytes)};
}

double PagesOfRow(const RowGroups& groups, uint64_t row_bytes) {
  if (row_bytes == 0) return 0;
  // Placements repeat after each group. Without groups they repeat as soon as a row begins at a page again.
  const uint64_t rows = groups.rows > 0 ? groups.rows : kPageBytes / std::gcd(kPageBytes, row_bytes);
  uint64_t pages = 0;
  for (uint64_t row = 0; row < rows; ++row) pages += PagesFrom(groups.OffsetOf(row, row_bytes), row_bytes);
  return static_cast<double>(pages) / static_cast<double>(rows);
}

}  // namespace permafrost::data
