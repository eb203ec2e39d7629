// An NPY array as a stream of its elements: of a file by itself, or of a member of an NPZ archive; and a sparse matrix,
// whose parts are such members.
// Threads: one at a time. Memory: a buffer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/source/source_file.h"

namespace permafrost::data {

// The header of an NPY array, versions 1 to 3.
// Source of the format: numpy/lib/format.py.
// Threads: pure.
enum class NpyKind { kBool, kSigned, kUnsigned, kFloat, kBytes };

struct NpyHeader {
  NpyKind kind = NpyKind::kFloat;
  uint64_t item_bytes = 0;
  std::vector<uint64_t> shape;  // its product, and that with item_bytes, fit 63 bits
  std::string descr;            // as the file says it

  uint64_t elements() const;
  // "float32 [3, 4]".
  std::string ToString() const;
};

// `stem`.npy below `source`, or `stem`.npz; nullopt if there is none.
absl::StatusOr<std::optional<SourceFile>> FindNpy(const std::filesystem::path& source, std::string_view stem);
absl::StatusOr<std::optional<SourceFile>> FindNpz(const std::filesystem::path& source, std::string_view stem);

class NpyArray {
 public:
  // Opens `member`.npy in the archive `file`, or `file` itself if `member` is empty. Errors name the file and what
  // cannot be.
  static absl::StatusOr<NpyArray> Open(const SourceFile& file, const std::string& member, ImportMonitor& monitor);

  const NpyHeader& header() const { return header_; }
  // The name that messages use: "adj.npz: indptr".
  const std::string& name() const { return name_; }
  // The element that is read next.
  uint64_t position() const { return position_; }

  // The next elements; as many as asked for must be left.
  absl::Status ReadBytes(std::span<std::byte> out);
  // Reads integers and truth values. InvalidArgument for other arrays, and for numbers above int64's.
  absl::Status ReadIntegers(std::span<int64_t> out);
  // Reads numbers of every type, rounded to float. InvalidArgument for finite ones out of float's range, and for arrays
  // of anything else.
  absl::Status ReadFloats(std::span<float> out);
  absl::Status Skip(uint64_t elements);
  // Ok if no bytes follow the last element; if some do, the header does not mean this file.
  absl::Status ExpectEnd();
  void Rewind() { reader_->Rewind(); }

  // InvalidArgument "NAME: element I: what", I counted in the array's shape: "[2, 0]".
  absl::Status ElementError(uint64_t element, std::string_view what) const;
  // InvalidArgument "NAME: shape: is SHAPE, expected what".
  absl::Status ShapeError(std::string_view expected) const;

 private:
  NpyArray(std::string name, std::unique_ptr<SourceReader> reader)
      : name_(std::move(name)), reader_(std::move(reader)) {}
  absl::Status ReadHeader();
  absl::Status ReadFully(std::span<std::byte> out);
  // Called after a piece was read. InvalidArgument if a finite double became infinite.
  absl::Status CheckRange(std::span<const std::byte> doubles, std::span<const float> floats) const;

  std::string name_;
  std::unique_ptr<SourceReader> reader_;
  NpyHeader header_;
  uint64_t position_ = 0;
  std::vector<std::byte> buffer_;
};

struct MatrixEntry {
  uint32_t row = 0, column = 0;
  float value = 0;
};

// A CSR matrix of scipy.sparse.save_npz as a stream of its entries.
// Threads: one at a time. Memory: buffers.
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
