#include "data/batching/padded_rows.h"

namespace permafrost::data {

void SetBounds(std::span<const int64_t> rows_of_segments, SegmentBounds& bounds) {
  bounds.assign(1, 0);
  for (const int64_t rows : rows_of_segments) bounds.push_back(bounds.back() + rows);
}

void MoveOffsets(AlignedVector<int64_t>& offsets, const SegmentBounds& from, const SegmentBounds& to,
                 std::span<const int64_t> real) {
  const int64_t total = offsets.back();
  MoveRows(offsets, from, to, real, 1);
  FillOffsetPadding(offsets, to, real, total);
}

void FillOffsetPadding(AlignedVector<int64_t>& offsets, const SegmentBounds& bounds, std::span<const int64_t> real,
                       int64_t total) {
  offsets.resize(static_cast<size_t>(bounds.back()) + 1);
  int64_t next = total;
  offsets.back() = total;
  for (size_t s = real.size(); s-- > 0;) {
    std::fill(offsets.begin() + bounds[s] + real[s], offsets.begin() + bounds[s + 1], next);
    if (real[s] > 0) next = offsets[static_cast<size_t>(bounds[s])];
  }
}

}  // namespace permafrost::data
