#include "data/import/dense_features.h"
#include "data/store/to_float.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "data/import/feature_rows.h"
#include "data/sort/nameless_file.h"
#include "data/source/csv_rows.h"
#include "data/source/npy_array.h"
#include "data/store/element_type.h"

namespace permafrost::data {
namespace {

// Reads the table as one type. False: it is no table of integers.
template <class Take>
absl::StatusOr<bool> ReadRows(const SourceFile& file, const DueTable& due, ImportMonitor& monitor,
                              FeatureRows& features, const Take& take) {
  const auto rows_due = static_cast<int64_t>(due.rows);
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  for (int64_t row = 0; row < rows_due; ++row) {
    PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(rows_due, due.why));
    PF_RETURN_IF_ERROR(features.Parse(rows, line));
    if (features.needs_floats()) {
      rows.Rewind();
      return false;
    }
    PF_RETURN_IF_ERROR(take(row == 0));
  }
  PF_RETURN_IF_ERROR(rows.ExpectEnd(rows_due, due.why));
  PF_RETURN_IF_ERROR(features.Finish());
  return true;
}

// What a type of array is stored as; kNone for those that are not taken.
DataType StoredType(const NpyHeader& header, bool bfloat16) {
  const auto is = [&header](NpyKind kind, uint64_t bytes) { return header.kind == kind && header.item_bytes == bytes; };
  if (bfloat16) return is(NpyKind::kUnsigned, 2) ? DataType::kBfloat16 : DataType::kNone;
  if (is(NpyKind::kFloat, 4) || is(NpyKind::kFloat, 8)) return DataType::kFloat32;
  if (is(NpyKind::kFloat, 2)) return DataType::kFloat16;
  if (is(NpyKind::kUnsigned, 1) || is(NpyKind::kBool, 1)) return DataType::kUint8;
  if (is(NpyKind::kSigned, 4)) return DataType::kInt32;
  if (is(NpyKind::kSigned, 8)) return DataType::kInt64;
  return DataType::kNone;
}

template <class T>
double ValueOf(T value) {
  return static_cast<double>(value);
}

// Widens min and max by some rows; false at the first value that is not finite, whose place is `bad`.
template <class T, class Value>
bool Widen(std::span<const std::byte> bytes, const Value& value_of, FeatureSummary& summary, uint64_t& bad) {
  const auto width = static_cast<size_t>(summary.width);
  const size_t count = bytes.size() / sizeof(T);
  for (size_t i = 0, column = 0; i < count; ++i) {
    T item;
    std::memcpy(&item, bytes.data() + i * sizeof(T), sizeof(T));
    const double value = value_of(item);
    if (!std::isfinite(value)) {
      bad = i;
      return false;
    }
    summary.min[column] = std::min(summary.min[column], value);
    summary.max[column] = std::max(summary.max[column], value);
    if (++column == width) column = 0;
  }
  return true;
}

bool WidenStored(std::span<const std::byte> bytes, FeatureSummary& summary, uint64_t& bad) {
  switch (summary.type) {
    case DataType::kInt32:
      return Widen<int32_t>(bytes, ValueOf<int32_t>, summary, bad);
    case DataType::kInt64:
      return Widen<int64_t>(bytes, ValueOf<int64_t>, summary, bad);
    case DataType::kUint8:
      return Widen<uint8_t>(bytes, ValueOf<uint8_t>, summary, bad);
    case DataType::kFloat16:
      return Widen<uint16_t>(bytes, HalfToFloat, summary, bad);
    case DataType::kBfloat16:
      return Widen<uint16_t>(bytes, Bfloat16ToFloat, summary, bad);
    default:
      return Widen<float>(bytes, ValueOf<float>, summary, bad);
  }
}

// Checks the header; [rows] is a table of one column.
absl::StatusOr<uint64_t> WidthOf(const NpyArray& array) {
  const auto& shape = array.header().shape;
  const uint64_t width = shape.size() == 2 ? shape[1] : 1;
  if (shape.empty() || shape.size() > 2 || width == 0 || width > kMaxFeatureColumns) {
    return array.ShapeError(absl::StrCat("[rows, columns] with 1..", kMaxFeatureColumns, " columns"));
  }
  return width;
}

}  // namespace

absl::StatusOr<FeatureSummary> WriteFeatureRows(const SourceFile& file, const DueTable& due,
                                                const std::filesystem::path& directory, ImportMonitor& monitor,
                                                GraphWriter& writer) {
  if (due.rows == 0) return FeatureSummary();
  {
    // Whether all are integers is known at the end only.
    FeatureRows features(DataType::kInt32);
    WaitingColumn waiting(directory, monitor.stop());
    PF_ASSIGN_OR_RETURN(const bool done, ReadRows(file, due, monitor, features,
                                                  [&](bool) { return waiting.AppendBytes(features.row()); }));
    if (done) {
      FeatureSummary summary = features.summary();
      PF_RETURN_IF_ERROR(
          waiting.MoveTo(writer, due.section, ElementType::kInt32, static_cast<uint32_t>(summary.width)));
      return summary;
    }
  }
  FeatureRows features(DataType::kFloat32);
  const auto take = [&](bool first) -> absl::Status {
    if (first) {
      const auto width = static_cast<uint32_t>(features.summary().width);
      PF_RETURN_IF_ERROR(writer.Begin(due.section, ElementType::kFloat32, width));
    }
    return writer.Append(features.row());
  };
  PF_RETURN_IF_ERROR(ReadRows(file, due, monitor, features, take).status());
  return features.summary();
}

absl::StatusOr<FeatureSummary> WriteFeatureArray(const SourceFile& file, bool bfloat16, const DueTable& due,
                                                 ImportMonitor& monitor, GraphWriter& writer) {
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  PF_ASSIGN_OR_RETURN(const uint64_t width, WidthOf(array));
  const NpyHeader& header = array.header();
  if (header.shape[0] != due.rows) return array.ShapeError(absl::StrCat(due.rows, " rows (", due.why, ")"));
  FeatureSummary summary{.type = StoredType(header, bfloat16), .width = static_cast<int64_t>(width)};
  if (summary.type == DataType::kNone) {
    return absl::InvalidArgumentError(
        absl::StrCat(array.name(), ": descr: ", header.descr, ", expected ",
                     bfloat16 ? "<u2 (the bits of bfloat16)" : "one of <f4, <f2, <f8, |u1, |b1, <i4, <i8"));
  }
  constexpr uint64_t kBytesPerColumn = 2 * sizeof(double);
  if (width > monitor.limits().memory_bytes / kBytesPerColumn) {
    return absl::ResourceExhaustedError(absl::StrCat(array.name(), ": ", width,
                                                     " columns take more memory than an import's limit, ",
                                                     monitor.limits().memory_bytes, " bytes"));
  }
  summary.min.assign(width, std::numeric_limits<double>::infinity());
  summary.max.assign(width, -std::numeric_limits<double>::infinity());
  PF_RETURN_IF_ERROR(writer.Begin(due.section, ElementTypeOf(summary.type), static_cast<uint32_t>(width)));
  const bool narrowed = header.kind == NpyKind::kFloat && header.item_bytes == 8;
  const uint64_t row_bytes = width * std::max<uint64_t>(1, ElementBytes(summary.type));
  constexpr uint64_t kPieceBytes = uint64_t{1} << 20;
  const uint64_t rows_at_once = std::max<uint64_t>(1, kPieceBytes / row_bytes);
  std::vector<std::byte> piece;
  std::vector<float> floats;
  for (uint64_t row = 0; row < due.rows; row += rows_at_once) {
    const uint64_t rows = std::min(rows_at_once, due.rows - row);
    std::span<const std::byte> bytes;
    if (narrowed) {
      floats.resize(rows * width);
      PF_RETURN_IF_ERROR(array.ReadFloats(floats));
      bytes = std::as_bytes(std::span(floats));
    } else {
      piece.resize(rows * row_bytes);
      PF_RETURN_IF_ERROR(array.ReadBytes(piece));
      bytes = piece;
    }
    uint64_t bad = 0;
    if (!WidenStored(bytes, summary, bad)) {
      return array.ElementError(row * width + bad, "is not a finite number");
    }
    PF_RETURN_IF_ERROR(writer.Append(bytes));
  }
  PF_RETURN_IF_ERROR(array.ExpectEnd());
  if (due.rows == 0) summary.min = summary.max = {};
  return summary;
}

absl::StatusOr<int64_t> FeatureRowsWidth(const SourceFile& file, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  std::string_view line;
  PF_ASSIGN_OR_RETURN(const bool any, rows.Next(line));
  const int64_t width = any ? CountCells(line) : 0;
  rows.Rewind();
  return width;
}

absl::StatusOr<int64_t> FeatureArrayWidth(const SourceFile& file, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  PF_ASSIGN_OR_RETURN(const uint64_t width, WidthOf(array));
  array.Rewind();
  return static_cast<int64_t>(width);
}

}  // namespace permafrost::data
