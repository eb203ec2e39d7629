#include "data/import/tu_features.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
namespace {

// A wider row is not what anyone means by one-hot, and a table of them fills disks.
constexpr int64_t kMostOneHot = 4096;

}  // namespace

template <class Take>
absl::Status TuFeatures::ParseLabelRow(const CsvRows& rows, std::string_view line, size_t width,
                                       const Take& take) const {
  if (const int64_t cells = CountCells(line); width != 0 && cells != static_cast<int64_t>(width)) {
    return rows.WidthError(cells, static_cast<int64_t>(width), "as the rows before");
  }
  Cells cells(line);
  std::string_view cell;
  for (size_t column = 0; cells.Next(cell); ++column) {
    int32_t value = 0;
    if (ParseInteger(cell, value) != IntegerCell::kOk) {
      // Some sets write whole numbers with a point.
      const auto number = ParseFinite(cell);
      constexpr float kExact = 1 << 24;
      if (!number || std::floor(*number) != *number || std::abs(*number) > kExact) {
        return rows.Error(absl::StrCat("label ", column + 1),
                          absl::StrCat(Quote(cell), " is no whole number of 32 bits"));
      }
      value = static_cast<int32_t>(*number);
    }
    take(column, value);
  }
  return absl::OkStatus();
}

absl::Status TuFeatures::ScanLabels(const SourceFile& file, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  for (int64_t row = 0; row < due_; ++row) {
    PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(due_, why_));
    const size_t width = label_columns_.size();
    if (width == 0) label_columns_.assign(static_cast<size_t>(CountCells(line)), {INT64_MAX, INT64_MIN});
    const auto widen = [this](size_t column, int64_t value) {
      Label& label = label_columns_[column];
      label = {std::min(label.min, value), std::max(label.max, value)};
      values_.Add(column, value);
    };
    PF_RETURN_IF_ERROR(ParseLabelRow(rows, line, width, widen));
  }
  PF_RETURN_IF_ERROR(rows.ExpectEnd(due_, why_));
  int64_t columns = 0;
  for (size_t c = 0; c < label_columns_.size(); ++c) {
    const Label& label = label_columns_[c];
    columns += label.categories();
    if (floats() && columns > kMostOneHot) {
      return absl::InvalidArgumentError(absl::StrCat(
          file.name, ": label ", c + 1, ": numbers from ", label.min, " to ", label.max, " make ", columns,
          " one-hot columns; at most ", kMostOneHot, " are accepted (labels or attributes alone need none)"));
    }
    if (label.categories() > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(file.name, ": label ", c + 1, ": numbers from ", label.min, " to ",
                                                     label.max, " are more than 2147483647 categories"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<TuFeatures> TuFeatures::Open(const TuFiles::Features& files, bool one_hot, int64_t rows,
                                            const std::string& why, ImportMonitor& monitor) {
  TuFeatures features(one_hot, rows, why);
  if (files.attributes) {
    PF_ASSIGN_OR_RETURN(features.attributes_, CsvRows::Open(*files.attributes, monitor));
  }
  if (files.labels) {
    PF_RETURN_IF_ERROR(features.ScanLabels(*files.labels, monitor));
    PF_ASSIGN_OR_RETURN(features.labels_, CsvRows::Open(*files.labels, monitor));
  }
  return features;
}

absl::Status TuFeatures::SetUp() {
  int64_t width = static_cast<int64_t>(num_attributes_);
  for (const Label& label : label_columns_) width += floats() ? label.categories() : 1;
  summary_.type = floats() ? DataType::kFloat32 : DataType::kInt32;
  summary_.width = width;
  const auto cells = static_cast<size_t>(width);
  (floats() ? floats_.resize(cells) : ints_.resize(cells));
  summary_.min.assign(cells, std::numeric_limits<double>::infinity());
  summary_.max.assign(cells, -std::numeric_limits<double>::infinity());
  return absl::OkStatus();
}

absl::Status TuFeatures::ParseAttributes(std::string_view line) {
  const CsvRows& rows = *attributes_;
  if (const int64_t cells = CountCells(line); cells != static_cast<int64_t>(num_attributes_)) {
    return rows.WidthError(cells, static_cast<int64_t>(num_attributes_), "as the rows before");
  }
  Cells cells(line);
  std::string_view cell;
  for (size_t column = 0; cells.Next(cell); ++column) {
    const auto value = ParseFinite(cell);
    if (!value)
      return rows.Error(absl::StrCat("attribute ", column + 1),
                        absl::StrCat(Quote(cell), " ", AbslView(WhyNotFinite(cell))));
    floats_[column] = *value;
  }
  return absl::OkStatus();
}

absl::Status TuFeatures::Next() {
  std::string_view attributes, labels;
  if (attributes_) {
    PF_ASSIGN_OR_RETURN(attributes, attributes_->NextDue(due_, why_));
    if (num_attributes_ == 0) num_attributes_ = static_cast<size_t>(CountCells(attributes));
  }
  if (labels_) {
    PF_ASSIGN_OR_RETURN(labels, labels_->NextDue(due_, why_));
  }
  if (summary_.width == 0) PF_RETURN_IF_ERROR(SetUp());
  if (attributes_) PF_RETURN_IF_ERROR(ParseAttributes(attributes));
  if (labels_) {
    std::fill(floats_.begin() + static_cast<std::ptrdiff_t>(std::min(num_attributes_, floats_.size())), floats_.end(),
              0.0F);
    size_t first = num_attributes_;
    const auto take = [&](size_t column, int64_t value) {
      const Label& label = label_columns_[column];
      // The file may have changed since it was scanned.
      const auto category = static_cast<size_t>(std::clamp(value, label.min, label.max) - label.min);
      if (!floats()) {
        ints_[column] = static_cast<int32_t>(category);
        return;
      }
      floats_[first + category] = 1;
      first += static_cast<size_t>(label.categories());
    };
    PF_RETURN_IF_ERROR(ParseLabelRow(*labels_, labels, label_columns_.size(), take));
  }
  Widen();
  return absl::OkStatus();
}

void TuFeatures::Widen() {
  for (size_t c = 0; c < summary_.min.size(); ++c) {
    const double value = floats() ? static_cast<double>(floats_[c]) : ints_[c];
    summary_.min[c] = std::min(summary_.min[c], value);
    summary_.max[c] = std::max(summary_.max[c], value);
  }
}

absl::Status TuFeatures::ExpectEnd() {
  if (attributes_) PF_RETURN_IF_ERROR(attributes_->ExpectEnd(due_, why_));
  return labels_ ? labels_->ExpectEnd(due_, why_) : absl::OkStatus();
}

std::span<const std::byte> TuFeatures::row() const {
  return floats() ? std::as_bytes(std::span(floats_)) : std::as_bytes(std::span(ints_));
}

std::vector<CategoryTable> TuFeatures::categories() const {
  std::vector<CategoryTable> tables;
  auto column = static_cast<int64_t>(num_attributes_);
  for (size_t c = 0; c < label_columns_.size(); ++c) {
    const int64_t columns = floats() ? label_columns_[c].categories() : 0;
    CategoryTable& table = tables.emplace_back(CategoryTable{
        .origin = CategoryOrigin::kLabel, .column = column, .columns = columns, .base = label_columns_[c].min});
    values_.Take(c, table);
    column += std::max<int64_t>(columns, 1);
  }
  return tables;
}

std::string TuFeatures::origin() const {
  if (!labels_) return attributes_ ? "attributes" : "";
  std::string from;
  for (const Label& label : label_columns_) absl::StrAppend(&from, from.empty() ? " from " : ", ", label.min);
  if (!floats()) return absl::StrCat("labels", from);
  return absl::StrCat(attributes_ ? "attributes and one-hot labels" : "one-hot labels", from);
}

absl::Status TuRows::Keep(int64_t rows) {
  constexpr size_t kBufferBytes = size_t{1} << 19;
  PF_ASSIGN_OR_RETURN(NamelessFile file, NamelessFile::Create(directory_));
  std::vector<std::byte> buffer;
  for (int64_t row = 0; row < rows; ++row) {
    PF_RETURN_IF_ERROR(features_.Next());
    buffer.insert(buffer.end(), features_.row().begin(), features_.row().end());
    if (buffer.size() < kBufferBytes) continue;
    PF_RETURN_IF_ERROR(file.Append(buffer, monitor_.stop()));
    buffer.clear();
  }
  PF_RETURN_IF_ERROR(file.Append(buffer, monitor_.stop()));
  row_.resize(features_.row().size());
  file_ = std::make_unique<NamelessFile>(std::move(file));
  return absl::OkStatus();
}

absl::Status TuRows::Read(uint64_t row) { return file_ ? file_->Read(row * row_.size(), row_) : features_.Next(); }

}  // namespace permafrost::data
