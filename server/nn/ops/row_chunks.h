// Rows in contiguous chunks, whose number and bounds depend on the rows alone: sums by chunk, added up in the order of
// chunks, have equal bits for any number of threads.
// Threads: a value.
#pragma once

#include <algorithm>
#include <cstdint>

namespace permafrost::nn {

class RowChunks {
 public:
  // With 64 floats a row, one array of a chunk fills an L1 cache, all of a layer's fit into an L2 cache.
  static constexpr int64_t kRows = 128;

  // partial: values that each chunk keeps for its sums. They bound the chunks, so that adding up stays cheap.
  RowChunks(int64_t rows, int64_t partial) : rows_(rows), count_(CountOf(rows, partial)) {}
  // The most chunks for up to `rows` rows.
  static int64_t CountOf(int64_t rows, int64_t partial) {
    const int64_t most = std::clamp(kPartialValues / std::max<int64_t>(1, partial), kFewest, kMost);
    return std::clamp<int64_t>((rows + kRows - 1) / kRows, 1, most);
  }

  int64_t count() const { return count_; }
  int64_t begin(int64_t chunk) const { return rows_ * chunk / count_; }
  int64_t size(int64_t chunk) const { return begin(chunk + 1) - begin(chunk); }

 private:
  static constexpr int64_t kPartialValues = 1 << 20, kFewest = 8, kMost = 64;
  int64_t rows_, count_;
};

}  // namespace permafrost::nn
