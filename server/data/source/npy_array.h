// Reads an NPY array as a stream of its elements, from its own file or from a member of an NPZ archive. Also reads a
// sparse matrix from the members of an NPZ archive.
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
  std::vector<uint64_t> shape;  // item_bytes times all dimensions fits 63 bits
  std::string descr;            // the type as the file writes it: "<f4"

  uint64_t elements() const;
  // Returns type and shape for messages: "float32 [3, 4]".
  std::string ToString() const;
};

// FindNpy finds `stem`.npy below `source`, and FindNpz finds `stem`.npz. Both return nullopt if there is no such file.
// Errors: those of FindFileAt.
absl::StatusOr<std::optional<SourceFile>> FindNpy(const std::filesystem::path& source, std::string_view stem);
absl::StatusOr<std::optional<SourceFile>> FindNpz(const std::filesystem::path& source, std::string_view stem);

class NpyArray {
 public:
  // Opens `member`.npy in the archive `file`, or `file` itself if `member` is empty. Errors name the file and say
  // what is wrong with it.
  static absl::StatusOr<NpyArray> Open(const SourceFile& file, const std::string& member, ImportMonitor& monitor);

  const NpyHeader& header() const { return header_; }
  // The name that messages use: "adj.npz: indptr".
  const std::string& name() const { return name_; }
  // Returns the index of the element that will be read next.
  uint64_t position() const { return position_; }

  // Reads the next elements as bytes. `out` must not be longer than the rest of the array.
  absl::Status ReadBytes(std::span<std::byte> out);
  // Reads integers and booleans. Errors: InvalidArgument for an array of another type, and for a number above the
  // largest int64.
  absl::Status ReadIntegers(std::span<int64_t> out);
  // Reads numbers of any type, rounded to float. Errors: InvalidArgument for an array of byte strings, and for a
  // finite number out of float32's range.
  absl::Status ReadFloats(std::span<float> out);
  absl::Status Skip(uint64_t elements);
  // Call it after the last element. Returns InvalidArgument if more bytes follow, since then the header does not fit
  // the file.
  absl::Status ExpectEnd();
  void Rewind() { reader_->Rewind(); }

  // Returns InvalidArgument "NAME: element I: what". I is the element's index in every dimension: "[2, 0]".
  absl::Status ElementError(uint64_t element, std::string_view what) const;
  // Returns InvalidArgument "NAME: shape: is SHAPE, expected what".
  absl::Status ShapeError(std::string_view expected) const;

 private:
  NpyArray(std::string name, std::unique_ptr<SourceReader> reader)
      : name_(std::move(name)), reader_(std::move(reader)) {}
  absl::Status ReadHeader();
  absl::Status ReadFully(std::span<std::byte> out);
  // Call it after reading a piece. Returns InvalidArgument if a finite double became infinite as a float.
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

// Reads a CSR matrix, saved by scipy.sparse.save_npz, as a stream of its entries.
// Threads: one at a time. Memory: buffers.
class CsrMatrix {
 public:
  // Reads the headers and the shape. Errors: InvalidArgument if the format is not CSR, if the members do not fit
  // together, or if there are more than kMaxNodes rows or columns.
  static absl::StatusOr<CsrMatrix> Open(const SourceFile& file, ImportMonitor& monitor);
  uint64_t rows() const { return rows_; }
  uint64_t width() const { return width_; }
  uint64_t entries() const { return entries_; }

  // Replaces `entries` by the next ones, in rising order of rows. Returns false at the end, once it has checked that
  // no member holds more elements. Errors: InvalidArgument, naming member and element, for falling offsets, for
  // columns beyond the width, and for values that are not finite.
  absl::StatusOr<bool> Next(std::vector<MatrixEntry>& entries);
  // Tells the monitor that the file will be read again from its beginning.
  void Rewind();

 private:
  CsrMatrix(NpyArray offsets, NpyArray columns, NpyArray values)
      : offsets_(std::move(offsets)), columns_(std::move(columns)), values_(std::move(values)) {}
  // Sets row_ to the row that holds entry number `entry`, which must be below entries().
  absl::Status FindRow(uint64_t entry);

  NpyArray offsets_, columns_, values_;
  uint64_t rows_ = 0, width_ = 0, entries_ = 0;
  uint64_t given_ = 0;
  std::vector<int64_t> ends_;  // end offsets of the rows from ends_begin_ on
  uint64_t ends_begin_ = 0, row_ = 0;
  int64_t last_end_ = 0;
  std::vector<int64_t> column_buffer_;
  std::vector<float> value_buffer_;
};

}  // namespace permafrost::data
