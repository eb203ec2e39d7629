#include "data/import/dense_features.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/feature_rows.h"
#include "data/import/stored_values.h"
#include "data/sort/nameless_file.h"
#include "data/source/csv_rows.h"
#include "data/source/npy_array.h"
#include "data/store/element_type.h"

namespace permafrost::data {
namespace {

// Reads the table as one type; take(rows, whether it is the first) for each of its rows. False: it is no table of
// integers.
template <class Take>
absl::StatusOr<bool> ReadRows(const SourceFile& file, const DueTable& due, ImportMonitor& monitor,
                              FeatureRows& features, const Take& take) {
  const auto rows_due = static_cast<int64_t>(due.rows);
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  for (int64_t row = 0; row < rows_due; ++row) {
    PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(rows_due, due.why));
    if (const int64_t cells = row == 0 ? CountCells(line) : 0; cells > int64_t{kMaxFeatureColumns}) {
      return rows.Error("columns", absl::StrCat("the row has ", cells, ", expected at most ", kMaxFeatureColumns));
    }
    PF_RETURN_IF_ERROR(features.Parse(rows, line));
    if (features.needs_floats()) {
      rows.Rewind();
      return false;
    }
    PF_RETURN_IF_ERROR(take(rows, row == 0));
  }
  PF_RETURN_IF_ERROR(rows.ExpectEnd(rows_due, due.why));
  PF_RETURN_IF_ERROR(features.Finish());
  return true;
}

// Returns the type that an array is stored as; kNone for arrays that are not taken.
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

// Widens min and max by some rows; false at the first value that is not finite, whose place is `bad`.
bool Widen(std::span<const std::byte> bytes, FeatureSummary& summary, uint64_t& bad) {
  const auto width = static_cast<size_t>(summary.width);
  const size_t count = bytes.size() / ElementBytes(summary.type);
  return WithValues(summary.type, [&](const auto& value_at) {
    for (size_t i = 0, column = 0; i < count; ++i) {
      const double value = value_at(bytes.data(), i);
      if (!std::isfinite(value)) {
        bad = i;
        return false;
      }
      summary.min[column] = std::min(summary.min[column], value);
      summary.max[column] = std::max(summary.max[column], value);
      if (++column == width) column = 0;
    }
    return true;
  });
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
  if (due.rows == 0) {
    PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
    PF_RETURN_IF_ERROR(rows.ExpectEnd(0, due.why));
    return FeatureSummary();
  }
  FeatureSink sink(due, directory, monitor, writer);
  const auto no_fault = [](uint64_t, std::string_view) { return absl::OkStatus(); };
  if (due.as == FeatureType::kAsIs) {
    // Only the end tells whether all are integers.
    FeatureRows features(DataType::kInt32);
    WaitingColumn waiting(directory, monitor.stop());
    PF_ASSIGN_OR_RETURN(const bool done, ReadRows(file, due, monitor, features, [&](const CsvRows&, bool) {
                          return waiting.AppendBytes(features.row());
                        }));
    if (done) {
      FeatureSummary summary = features.summary();
      PF_RETURN_IF_ERROR(sink.Begin(DataType::kInt32, static_cast<uint64_t>(summary.width)));
      PF_RETURN_IF_ERROR(waiting.Drain(features.row().size(),
                                       [&](std::span<const std::byte> rows) { return sink.Append(rows, no_fault); }));
      PF_RETURN_IF_ERROR(sink.Finish(summary));
      return summary;
    }
  }
  FeatureRows features(DataType::kFloat32);
  const auto take = [&](const CsvRows& rows, bool first) -> absl::Status {
    const auto width = static_cast<uint64_t>(features.summary().width);
    if (first) PF_RETURN_IF_ERROR(sink.Begin(DataType::kFloat32, width));
    return sink.Append(features.row(), [&](uint64_t element, std::string_view what) {
      return rows.Error(absl::StrCat("column ", element % width + 1), what);
    });
  };
  PF_RETURN_IF_ERROR(ReadRows(file, due, monitor, features, take).status());
  FeatureSummary summary = features.summary();
  PF_RETURN_IF_ERROR(sink.Finish(summary));
  return summary;
}

absl::StatusOr<FeatureSummary> WriteFeatureArray(const SourceFile& file, bool bfloat16, const DueTable& due,
                                                 const std::filesystem::path& directory, ImportMonitor& monitor,
                                                 GraphWriter& writer) {
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
  // Ranges, and where values are converted errors and scales.
  const uint64_t column_bytes = (due.as == FeatureType::kAsIs ? 2 : 5) * sizeof(double);
  if (width > monitor.limits().memory_bytes / column_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(array.name(), ": ", width,
                                                     " columns take more memory than an import's limit, ",
                                                     monitor.limits().memory_bytes, " bytes"));
  }
  summary.min.assign(width, std::numeric_limits<double>::infinity());
  summary.max.assign(width, -std::numeric_limits<double>::infinity());
  FeatureSink sink(due, directory, monitor, writer);
  PF_RETURN_IF_ERROR(sink.Begin(summary.type, width));
  const auto fault = [&array](uint64_t element, std::string_view what) { return array.ElementError(element, what); };
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
    if (!Widen(bytes, summary, bad)) {
      return array.ElementError(row * width + bad, "is not a finite number");
    }
    PF_RETURN_IF_ERROR(sink.Append(bytes, fault));
  }
  PF_RETURN_IF_ERROR(array.ExpectEnd());
  PF_RETURN_IF_ERROR(sink.Finish(summary));
  if (due.rows == 0) summary.min = summary.max = {};
  return summary;
}

absl::Status CheckConverted(const ImportOptions& options, const FeatureSummary& found) {
  if (options.feature_type == FeatureType::kAsIs) return absl::OkStatus();
  if (found.type != DataType::kNone && found.type != DataType::kSparse) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("options.feature_type: ", AbslView(kFeatureTypeNames.Name(options.feature_type)),
                   found.type == DataType::kSparse
                       ? ", but the node features are sparse, and only dense ones are converted; as-is is accepted"
                       : ", but the source has no node features; as-is is accepted"));
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
