// Rows of a padded batch: they lie in segments, each with its real rows first.
// Threads: safe anywhere for different vectors.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_vector.h"

namespace permafrost::data {

// Segments of one padding: [segments + 1] where each begins, and the end of the last.
using SegmentBounds = std::vector<int64_t>;
// Reuses the memory of `bounds`.
void SetBounds(std::span<const int64_t> rows_of_segments, SegmentBounds& bounds);

// Returns where a row of segments bounded by `from` stands between the bounds `to`. from.front() <= row < from.back().
inline int64_t MoveRow(int64_t row, const SegmentBounds& from, const SegmentBounds& to) {
  size_t s = 0;
  while (row >= from[s + 1]) ++s;
  return row - from[s] + to[s];
}

// Sets the padding rows between `bounds` to `value`. values: [rows, width]; real: [segments] real rows of each.
template <class T>
void FillPadding(AlignedVector<T>& values, const SegmentBounds& bounds, std::span<const int64_t> real, int64_t width,
                 T value) {
  for (size_t s = 0; s < real.size(); ++s) {
    std::fill(values.begin() + (bounds[s] + real[s]) * width, values.begin() + bounds[s + 1] * width, value);
  }
}

// Gives [rows, width] values another padding, in place; what stands in padding rows then is anything.
template <class T>
void MoveRows(AlignedVector<T>& values, const SegmentBounds& from, const SegmentBounds& to,
              std::span<const int64_t> real, int64_t width) {
  const auto move = [&](size_t s) {
    const auto source = values.begin() + from[s] * width, target = values.begin() + to[s] * width;
    if (to[s] < from[s]) {
      std::copy(source, source + real[s] * width, target);
    } else {
      std::copy_backward(source, source + real[s] * width, target + real[s] * width);
    }
  };
  values.resize(static_cast<size_t>(std::max(from.back(), to.back()) * width));
  // A segment that goes up can meet only those after it that go up too, and one that goes down only those before it
  // that go down.
  for (size_t s = real.size(); s-- > 0;) {
    if (to[s] > from[s]) move(s);
  }
  for (size_t s = 0; s < real.size(); ++s) {
    if (to[s] < from[s]) move(s);
  }
  values.resize(static_cast<size_t>(to.back() * width));
}

// The same for [rows + 1] offsets of CSR, whose padding rows are empty.
void MoveOffsets(AlignedVector<int64_t>& offsets, const SegmentBounds& from, const SegmentBounds& to,
                 std::span<const int64_t> real);

// Fills offsets whose real rows hold their begins, the last one's end being `total`: padding rows begin where the next
// real row does.
void FillOffsetPadding(AlignedVector<int64_t>& offsets, const SegmentBounds& bounds, std::span<const int64_t> real,
                       int64_t total);

}  // namespace permafrost::data
