#include "data/import/feature_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
namespace {

// Numbers in 0..kMostBits - 1 take one bit each.
constexpr int64_t kMostBits = int64_t{1} << 20;
constexpr uint64_t kBytesPerOther = 32;

}  // namespace

void ValueSets::GiveUp(Column& column) {
  bytes_ -= column.bits.size() * sizeof(uint64_t) + column.others.size() * kBytesPerOther;
  column = Column{.bits = {}, .others = {}, .count = 0, .too_many = true};
}

void ValueSets::Count(Column& column) {
  if (++column.count > kMaxCategoryValues) GiveUp(column);
}

void ValueSets::AddBeyond(Column& column, int64_t value) {
  if (column.too_many) return;
  if (value >= 0 && value < kMostBits) {
    const size_t words = std::max<size_t>(std::bit_ceil(static_cast<uint64_t>(value) / 64 + 1), 4);
    bytes_ += (words - column.bits.size()) * sizeof(uint64_t);
    column.bits.resize(words);
    column.bits[static_cast<size_t>(value) / 64] |= uint64_t{1} << value % 64;
    Count(column);
  } else if (column.others.insert(value).second) {
    bytes_ += kBytesPerOther;
    Count(column);
  }
  if (bytes_ > kMostBytes) GiveUp(column);
}

void ValueSets::Take(size_t column, CategoryTable& table) const {
  table.values.clear();
  if (column >= columns_.size()) return;
  const Column& of = columns_[column];
  table.too_many = of.too_many;
  table.values.assign(of.others.begin(), of.others.end());
  for (size_t word = 0; word < of.bits.size(); ++word) {
    for (uint64_t left = of.bits[word]; left != 0; left &= left - 1) {
      table.values.push_back(static_cast<int64_t>(word * 64) + std::countr_zero(left));
    }
  }
  std::ranges::sort(table.values);
}

std::vector<CategoryTable> ValueSets::TakeColumns(int64_t width) const {
  std::vector<CategoryTable> tables(static_cast<size_t>(width));
  for (size_t column = 0; column < tables.size(); ++column) {
    tables[column].column = static_cast<int64_t>(column);
    Take(column, tables[column]);
  }
  return tables;
}

absl::Status ParseLabels(const CsvRows& rows, std::string_view line, std::vector<float>& labels) {
  labels.clear();
  Cells cells(line);
  std::string_view cell;
  while (cells.Next(cell)) {
    if (cell.empty() || cell == "nan" || cell == "NaN" || cell == "NA") {
      labels.push_back(std::numeric_limits<float>::quiet_NaN());
      continue;
    }
    const auto value = ParseFinite(cell);
    if (!value) {
      return rows.Error(absl::StrCat("target ", labels.size() + 1),
                        WhyNotFinite(cell) == kBeyondFloat32
                            ? absl::StrCat(Quote(cell), " ", AbslView(kBeyondFloat32))
                            : absl::StrCat(Quote(cell), " is neither a finite number nor missing (empty, nan or NA)"));
    }
    labels.push_back(*value);
  }
  return absl::OkStatus();
}

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
