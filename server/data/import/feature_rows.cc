#include "data/import/feature_rows.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/cell_number.h"

namespace permafrost::data {
namespace {

std::string ColumnName(size_t column) { return absl::StrCat("column ", column + 1); }

absl::Status NotFinite(const CsvRows& rows, std::string_view cell, size_t column) {
  return rows.Error(ColumnName(column), absl::StrCat(Quote(cell), " ", AbslView(WhyNotFinite(cell))));
}

}  // namespace

absl::Status FeatureRows::Parse(const CsvRows& rows, std::string_view line) {
  const bool first = summary_.width == 0;
  if (first) {
    summary_.width = CountCells(line);
    const auto width = static_cast<size_t>(summary_.width);
    (summary_.type == DataType::kInt32 ? ints_.resize(width) : floats_.resize(width));
    summary_.min.assign(width, std::numeric_limits<double>::infinity());
    summary_.max.assign(width, -std::numeric_limits<double>::infinity());
  }
  const auto width = static_cast<size_t>(summary_.width);
  Cells cells(line);
  std::string_view cell;
  size_t column = 0;
  for (; cells.Next(cell); ++column) {
    if (column == width) return rows.WidthError(CountCells(line), summary_.width, "as the rows before");
    PF_RETURN_IF_ERROR(summary_.type == DataType::kInt32 ? ParseInt(rows, cell, column)
                                                         : ParseFloat(rows, cell, column));
    if (needs_floats_) return absl::OkStatus();
  }
  return column == width ? absl::OkStatus()
                         : rows.WidthError(static_cast<int64_t>(column), summary_.width, "as the rows before");
}

absl::Status FeatureRows::ParseInt(const CsvRows& rows, std::string_view cell, size_t column) {
  int32_t value = 0;
  switch (ParseInteger(cell, value)) {
    case IntegerCell::kOk:
      ints_[column] = value;
      values_.Add(column, value);
      Widen(column, value);
      return absl::OkStatus();
    case IntegerCell::kOutOfRange:
      if (out_of_range_.ok()) {
        out_of_range_ = rows.Error(
            ColumnName(column), absl::StrCat(Quote(cell), " is outside ", std::numeric_limits<int32_t>::min(), "..",
                                             std::numeric_limits<int32_t>::max(), ", the range of an integer feature"));
      }
      return absl::OkStatus();
    case IntegerCell::kNotInteger:
      break;
  }
  if (!ParseFinite(cell)) return NotFinite(rows, cell, column);
  needs_floats_ = true;
  return absl::OkStatus();
}

absl::Status FeatureRows::ParseFloat(const CsvRows& rows, std::string_view cell, size_t column) {
  const auto value = ParseFinite(cell);
  if (!value) return NotFinite(rows, cell, column);
  floats_[column] = *value;
  Widen(column, *value);
  return absl::OkStatus();
}

void FeatureRows::Widen(size_t column, double value) {
  summary_.min[column] = std::min(summary_.min[column], value);
  summary_.max[column] = std::max(summary_.max[column], value);
}

std::span<const std::byte> FeatureRows::row() const {
  return summary_.type == DataType::kInt32 ? std::as_bytes(std::span(ints_)) : std::as_bytes(std::span(floats_));
}

std::vector<CategoryTable> FeatureRows::categories() const {
  return summary_.type == DataType::kInt32 ? values_.TakeColumns(summary_.width) : std::vector<CategoryTable>();
}

FeatureSummary FeatureRows::summary() const { return summary_.width > 0 ? summary_ : FeatureSummary(); }

}  // namespace permafrost::data
