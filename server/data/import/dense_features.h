// Puts tables of dense features into the store.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/feature_rows.h"
#include "data/import/renumbering.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"
#include "data/store/float_conversion.h"
#include "data/store/store_writer.h"
#include "data/store/types.h"

namespace permafrost::data {

// The values of features as they are stored, one by one.
// Threads: pure functions.

// Value i of bytes that hold values of T, which need no alignment.
template <class T>
T LoadValue(const std::byte* bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

// Calls run(value_at), where value_at(bytes, i) is value i of a type of integers.
template <class Run>
auto WithIntegers(DataType type, const Run& run) {
  switch (type) {
    case DataType::kInt64:
      return run([](const std::byte* bytes, size_t i) { return LoadValue<int64_t>(bytes, i); });
    case DataType::kUint8:
      return run([](const std::byte* bytes, size_t i) { return int64_t{LoadValue<uint8_t>(bytes, i)}; });
    default:
      return run([](const std::byte* bytes, size_t i) { return int64_t{LoadValue<int32_t>(bytes, i)}; });
  }
}

// Calls run(value_at), where value_at(bytes, i) is value i of a dense type as double; not of kInt8, whose values need
// their scales.
template <class Run>
auto WithValues(DataType type, const Run& run) {
  switch (type) {
    case DataType::kInt32:
      return run([](const std::byte* bytes, size_t i) { return static_cast<double>(LoadValue<int32_t>(bytes, i)); });
    case DataType::kInt64:
      return run([](const std::byte* bytes, size_t i) { return static_cast<double>(LoadValue<int64_t>(bytes, i)); });
    case DataType::kUint8:
      return run([](const std::byte* bytes, size_t i) { return static_cast<double>(LoadValue<uint8_t>(bytes, i)); });
    case DataType::kFloat16:
      return run([](const std::byte* bytes, size_t i) -> double { return HalfToFloat(LoadValue<uint16_t>(bytes, i)); });
    case DataType::kBfloat16:
      return run(
          [](const std::byte* bytes, size_t i) -> double { return Bfloat16ToFloat(LoadValue<uint16_t>(bytes, i)); });
    default:
      return run([](const std::byte* bytes, size_t i) -> double { return LoadValue<float>(bytes, i); });
  }
}

// A table that is due: its section, how many rows it must have and why.
struct DueTable {
  SectionKind section;
  uint64_t rows = 0;
  std::string why;  // "as raw/num-node-list.csv says"
  // For node features only.
  FeatureType as = FeatureType::kAsIs;
  const Renumbering* renumbering = nullptr;  // none where there is none
  uint64_t memory_bytes = 0;                 // for rows that are renumbered
};

// A dense table of features on its way into its section: as it comes, or converted; its rows in the order of the store.
// Threads: one at a time. Memory: 24 bytes a column where values are converted; pieces of rows; where rows must wait on
// disk (they are renumbered, or become int8, whose scales are known at the end only) what RowSpool takes.
class FeatureSink {
 public:
  // The error for an element of the source, row * width + column.
  using Fault = std::function<absl::Status(uint64_t element, std::string_view what)>;

  // `directory`: for temporary files. Borrows all of it.
  FeatureSink(const DueTable& due, const std::filesystem::path& directory, ImportMonitor& monitor, GraphWriter& writer)
      : due_(due), directory_(directory), monitor_(monitor), writer_(writer) {}

  // Begins a table of finite values of `type`, a dense one.
  absl::Status Begin(DataType type, uint64_t width);
  // Appends whole rows. Errors: those of `fault` for a value that the asked type cannot hold; those of the disk;
  // Cancelled.
  absl::Status Append(std::span<const std::byte> rows, const Fault& fault);
  // After the last row: `summary`, of what came, becomes that of what is stored.
  absl::Status Finish(FeatureSummary& summary);

 private:
  struct ColumnError {
    double largest = 0, squares = 0;
  };
  bool converts() const { return stored_ != type_; }
  void NoteError(size_t column, double difference) {
    ColumnError& error = errors_[column];
    if (difference > error.largest) error.largest = difference;
    error.squares += difference * difference;
  }
  // Rows of type_ into converted_.
  absl::Status Narrow(std::span<const std::byte> rows, const Fault& fault);
  absl::Status WriteScaled(const FeatureSummary& summary);
  void Quantize(std::span<const std::byte> rows);
  void Describe(FeatureSummary& summary) const;
  double Stored(double value, size_t column) const;

  const DueTable& due_;
  const std::filesystem::path& directory_;
  ImportMonitor& monitor_;
  GraphWriter& writer_;
  DataType type_ = DataType::kNone, stored_ = DataType::kNone;
  uint64_t width_ = 0, appended_ = 0;  // rows
  std::optional<RowSpool> spool_;
  std::vector<ColumnError> errors_;
  std::vector<float> scales_;
  std::vector<std::byte> converted_;
  // True for integer features of edges: models read those as categories, so `values_` keeps their values.
  bool keeps_values_ = false;
  ValueSets values_;
};

// Tables of features, from text or arrays, into the store.
// Threads: one at a time. Memory: a piece of the table, and what FeatureSink takes.

// Both functions store the table as `due` asks for. `directory`: for temporary files.

// A CSV table: int32 where every cell is an integer, else float32; float32 where `due` asks for a type.
absl::StatusOr<FeatureSummary> WriteFeatureRows(const SourceFile& file, const DueTable& due,
                                                const std::filesystem::path& directory, ImportMonitor& monitor,
                                                GraphWriter& writer);
// An NPY table [rows, width] or [rows], of '<f4', '<f2', '<f8' (as float32), '|u1', '|b1' (as uint8), '<i4', '<i8'; of
// '<u2' where it is `bfloat16`, and of nothing else then.
absl::StatusOr<FeatureSummary> WriteFeatureArray(const SourceFile& file, bool bfloat16, const DueTable& due,
                                                 const std::filesystem::path& directory, ImportMonitor& monitor,
                                                 GraphWriter& writer);

// Returns InvalidArgument if options.feature_type asks for a type and `found`, a graph's node features, is not dense.
absl::Status CheckConverted(const ImportOptions& options, const FeatureSummary& found);

// Columns of a file's table: read from its first row, or its header.
absl::StatusOr<int64_t> FeatureRowsWidth(const SourceFile& file, ImportMonitor& monitor);
absl::StatusOr<int64_t> FeatureArrayWidth(const SourceFile& file, ImportMonitor& monitor);

}  // namespace permafrost::data
