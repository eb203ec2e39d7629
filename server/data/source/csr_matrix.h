// A CSR matrix of scipy.sparse.save_npz as a stream of its entries.
// Threads: one at a time. Memory: buffers.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/source/npy_array.h"
#include "data/source/source_file.h"

namespace permafrost::data {

struct MatrixEntry {
  uint32_t row = 0, column = 0;
  float value = 0;
};

class CsrMatrix {
 public:
  // Reads headers and shape. Errors: InvalidArgument for another format than CSR, for members that do not fit together,
  // and for more rows or columns than kMaxNodes.
  static absl::StatusOr<CsrMatrix> Open(const SourceFile& file, ImportMonitor& monitor);
  uint64_t rows() const { return rows_; }
  uint64_t width() const { return width_; }
  uint64_t entries() const { return entries_; }

  // Replaces `entries` by the next ones, rows rising; false at the end, once nothing follows in any member. Errors name
  // the member and the element: offsets that fall, columns beyond the width, values that are not finite.
  absl::StatusOr<bool> Next(std::vector<MatrixEntry>& entries);
  // Tells the monitor that the file will be read again from its beginning.
  void Rewind();

 private:
  CsrMatrix(NpyArray offsets, NpyArray columns, NpyArray values)
      : offsets_(std::move(offsets)), columns_(std::move(columns)), values_(std::move(values)) {}
  // Moves to the row that holds entry `entry`, which there is.
  absl::Status FindRow(uint64_t entry);

  NpyArray offsets_, columns_, values_;
  uint64_t rows_ = 0, width_ = 0, entries_ = 0;
  uint64_t given_ = 0;
  std::vector<int64_t> ends_;  // the offsets after those of rows [ends_begin_, ...)
  uint64_t ends_begin_ = 0, row_ = 0;
  int64_t last_end_ = 0;
  std::vector<int64_t> column_buffer_;
  std::vector<float> value_buffer_;
};

}  // namespace permafrost::data
