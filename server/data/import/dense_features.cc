#include "data/import/dense_features.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/feature_rows.h"
#include "data/sort/nameless_file.h"
#include "data/source/csv_rows.h"
#include "data/source/npy_array.h"
#include "data/store/float_conversion.h"
#include "data/store/format.h"

namespace permafrost::data {
namespace {

constexpr double kMostSteps = 127;

const Renumbering kNotRenumbered;

DataType StoredAs(FeatureType as, DataType type) {
  switch (as) {
    case FeatureType::kAsIs:
      return type;
    case FeatureType::kFloat32:
      return DataType::kFloat32;
    case FeatureType::kFloat16:
      return DataType::kFloat16;
    case FeatureType::kBfloat16:
      return DataType::kBfloat16;
    case FeatureType::kInt8:
      return DataType::kInt8;
  }
  return type;
}

double LargestOf(const FeatureSummary& summary, size_t column) {
  return std::max(std::fabs(summary.min[column]), std::fabs(summary.max[column]));
}

// Returns the scale at which kMostSteps steps reach `largest`. The scale is rounded down if kMostSteps * scale would
// overflow float32.
float ScaleFor(double largest) {
  auto scale = static_cast<float>(largest / kMostSteps);
  while (!std::isfinite(scale * static_cast<float>(kMostSteps))) scale = std::nextafter(scale, 0.0f);
  return scale;
}

int8_t StepsOf(double value, float scale) {
  if (scale == 0) return 0;
  return static_cast<int8_t>(std::clamp(std::nearbyint(value / static_cast<double>(scale)), -kMostSteps, kMostSteps));
}

// Access to stored feature values, one at a time.
// Threads: pure functions.

// Returns value i of an array of T in `bytes`, which need no alignment.
template <class T>
T LoadValue(const std::byte* bytes, size_t i) {
  T value;
  std::memcpy(&value, bytes + i * sizeof(T), sizeof(T));
  return value;
}

// Calls run(value_at) for an integer type. value_at(bytes, i) returns value i as int64.
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

// Calls run(value_at) for a dense type. value_at(bytes, i) returns value i as double. kInt8 is not supported, since
// its values need scales.
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

// Writes a dense table of features into its section, converted if asked for, with rows in the order of the store.
// Threads: one at a time. Memory: pieces of rows, and 24 bytes per column if values are converted. Rows that are
// renumbered or become int8 wait in a RowSpool, which takes its own memory. Rows of int8 wait because their scales
// are known only after the last row.
class FeatureSink {
 public:
  // Makes the error for element row * width + column of the source.
  using Fault = std::function<absl::Status(uint64_t element, std::string_view what)>;

  // Borrows all arguments. `directory` is for temporary files.
  FeatureSink(const DueTable& due, const std::filesystem::path& directory, ImportMonitor& monitor, GraphWriter& writer)
      : due_(due), directory_(directory), monitor_(monitor), writer_(writer) {}

  // Begins a table of finite values of the dense type `type`.
  absl::Status Begin(DataType type, uint64_t width);
  // Appends whole rows. Errors: those of `fault` for a value that the requested type cannot hold; those of the disk;
  // Cancelled.
  absl::Status Append(std::span<const std::byte> rows, const Fault& fault);
  // Call it after the last row. `summary` describes the appended values, and is changed to describe the stored
  // values.
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
  // Converts rows of type_ into converted_.
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
  uint64_t width_ = 0, appended_ = 0;  // appended_ counts rows
  std::optional<RowSpool> spool_;
  std::vector<ColumnError> errors_;
  std::vector<float> scales_;
  std::vector<std::byte> converted_;
  // True for integer features of edges. Models read integer features of edges as categories, so `values_` collects
  // their values.
  bool keeps_values_ = false;
  ValueSets values_;
};

absl::Status FeatureSink::Begin(DataType type, uint64_t width) {
  type_ = type;
  stored_ = StoredAs(due_.as, type);
  width_ = width;
  if (converts()) errors_.assign(width, {});
  keeps_values_ = due_.section == SectionKind::kEdgeFeatures && IsCategorical(stored_);
  const Renumbering& renumbering = due_.renumbering == nullptr ? kNotRenumbered : *due_.renumbering;
  const bool scaled = stored_ == DataType::kInt8;
  if (renumbering.none() && !scaled) {
    return writer_.Begin(due_.section, ElementTypeOf(stored_), static_cast<uint32_t>(width));
  }
  PF_ASSIGN_OR_RETURN(spool_, RowSpool::Create({.directory = directory_,
                                                .rows = due_.rows,
                                                .row_bytes = width * ElementBytes(scaled ? type_ : stored_),
                                                .memory_bytes = due_.memory_bytes},
                                               renumbering, monitor_.stop()));
  return absl::OkStatus();
}

absl::Status FeatureSink::Append(std::span<const std::byte> rows, const Fault& fault) {
  if (converts() && stored_ != DataType::kInt8) {
    PF_RETURN_IF_ERROR(Narrow(rows, fault));
    rows = converted_;
  }
  if (keeps_values_) {
    const size_t count = rows.size() / ElementBytes(type_);
    WithIntegers(type_, [&](const auto& value_at) {
      for (size_t i = 0; i < count; ++i) values_.Add(i % width_, value_at(rows.data(), i));
    });
  }
  appended_ += rows.size() / (width_ * ElementBytes(stored_ == DataType::kInt8 ? type_ : stored_));
  return spool_ ? spool_->Append(rows) : writer_.Append(rows);
}

absl::Status FeatureSink::Narrow(std::span<const std::byte> rows, const Fault& fault) {
  const size_t count = rows.size() / ElementBytes(type_);
  converted_.resize(count * ElementBytes(stored_));
  const auto place = [&](size_t i, const auto& bits) {
    std::memcpy(converted_.data() + i * sizeof(bits), &bits, sizeof(bits));
  };
  // The index of the first value that a conversion made infinite, or `count` if there is none.
  const size_t bad = WithValues(type_, [&](const auto& value_at) {
    for (size_t i = 0, column = 0; i < count; ++i) {
      const double value = value_at(rows.data(), i);
      auto stored = static_cast<float>(value);
      if (stored_ == DataType::kFloat16) {
        const uint16_t half = FloatToHalf(stored);
        place(i, half);
        stored = HalfToFloat(half);
      } else if (stored_ == DataType::kBfloat16) {
        const uint16_t bits = FloatToBfloat16(stored);
        place(i, bits);
        stored = Bfloat16ToFloat(bits);
      } else {
        place(i, stored);
      }
      if (!std::isfinite(stored)) return i;
      NoteError(column, std::fabs(value - static_cast<double>(stored)));
      if (++column == width_) column = 0;
    }
    return count;
  });
  if (bad == count) return absl::OkStatus();
  const double value = WithValues(type_, [&](const auto& value_at) { return value_at(rows.data(), bad); });
  const double most = stored_ == DataType::kFloat16 ? 65504 : static_cast<double>(Bfloat16ToFloat(0x7f7f));
  return fault(appended_ * width_ + bad,
               absl::StrCat(value, " becomes infinite as ", AbslView(kDataTypeNames.Name(stored_)),
                            ", whose largest value is ", most));
}

absl::Status FeatureSink::WriteScaled(const FeatureSummary& summary) {
  scales_.resize(width_);
  for (size_t column = 0; column < width_; ++column) scales_[column] = ScaleFor(LargestOf(summary, column));
  PF_RETURN_IF_ERROR(writer_.Write(SectionKind::kNodeFeatureScales, ElementType::kFloat32,
                                   std::span<const float>(scales_), static_cast<uint32_t>(width_)));
  PF_RETURN_IF_ERROR(writer_.Begin(due_.section, ElementType::kInt8, static_cast<uint32_t>(width_)));
  return spool_->Drain([this](std::span<const std::byte> rows) {
    Quantize(rows);
    return writer_.Append(converted_);
  });
}

void FeatureSink::Quantize(std::span<const std::byte> rows) {
  const size_t count = rows.size() / ElementBytes(type_);
  converted_.resize(count);
  WithValues(type_, [&](const auto& value_at) {
    for (size_t i = 0, column = 0; i < count; ++i) {
      const double value = value_at(rows.data(), i);
      const int8_t steps = StepsOf(value, scales_[column]);
      converted_[i] = static_cast<std::byte>(steps);
      NoteError(column, std::fabs(value - static_cast<double>(static_cast<float>(steps) * scales_[column])));
      if (++column == width_) column = 0;
    }
  });
}

absl::Status FeatureSink::Finish(FeatureSummary& summary) {
  if (stored_ == DataType::kInt8) {
    PF_RETURN_IF_ERROR(WriteScaled(summary));
  } else if (spool_) {
    PF_RETURN_IF_ERROR(writer_.Begin(due_.section, ElementTypeOf(stored_), static_cast<uint32_t>(width_)));
    PF_RETURN_IF_ERROR(spool_->Drain([this](std::span<const std::byte> rows) { return writer_.Append(rows); }));
  }
  spool_.reset();
  if (keeps_values_) writer_.categories().edge.tables = values_.TakeColumns(static_cast<int64_t>(width_));
  if (converts()) Describe(summary);
  return absl::OkStatus();
}

// Returns the value that a reader of the store will get for `value`.
double FeatureSink::Stored(double value, size_t column) const {
  const auto narrowed = static_cast<float>(value);
  switch (stored_) {
    case DataType::kFloat16:
      return HalfToFloat(FloatToHalf(narrowed));
    case DataType::kBfloat16:
      return Bfloat16ToFloat(FloatToBfloat16(narrowed));
    case DataType::kInt8:
      return static_cast<float>(StepsOf(value, scales_[column])) * scales_[column];
    default:
      return narrowed;
  }
}

void FeatureSink::Describe(FeatureSummary& summary) const {
  summary.converted_from = type_;
  summary.type = stored_;
  double squares = 0;
  for (size_t column = 0; column < width_; ++column) {
    if (const double largest = LargestOf(summary, column); largest > 0) {
      summary.largest_error = std::max(summary.largest_error, errors_[column].largest / largest);
      squares += errors_[column].squares / (largest * largest);
    }
    // Conversions keep the order of values, so the converted bounds are the new bounds.
    summary.min[column] = Stored(summary.min[column], column);
    summary.max[column] = Stored(summary.max[column], column);
  }
  summary.rms_error = std::sqrt(squares / (static_cast<double>(due_.rows) * static_cast<double>(width_)));
}

// Reads the table as the type of `features`, and calls take(rows, is_first) after each row. Returns false if the type
// is an integer type and a cell is not an integer.
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

// Returns the type in which an array is stored, or kNone if the array's type is not accepted.
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

// Widens the summary's min and max to include the rows in `bytes`. Returns false at the first value that is not
// finite, and sets `bad` to its index.
bool Widen(std::span<const std::byte> bytes, FeatureSummary& summary, uint64_t& bad) {
  const auto width = static_cast<size_t>(summary.width);
  const size_t count = bytes.size() / std::max<size_t>(1, ElementBytes(summary.type));
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

// Returns the number of columns of an array, after checking its shape. An array [rows] is a table of one column.
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
    // The rows wait on disk, since only after the last row is it known whether all cells are integers.
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
  // Bytes per column: for its range and, if values are converted, for its error and scale.
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
