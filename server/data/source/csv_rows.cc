#include "data/source/csv_rows.h"

#include <fast_float/fast_float.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::data {
namespace {

constexpr std::size_t kChunkBytes = 1 << 18;

std::string_view Trim(std::string_view s) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
  while (!s.empty() && is_space(s.back())) s.remove_suffix(1);
  return s;
}

}  // namespace

bool Cells::Next(std::string_view& cell) {
  if (done_) return false;
  const std::size_t comma = rest_.find(',');
  done_ = comma == rest_.npos;
  cell = Trim(rest_.substr(0, comma));
  if (!done_) rest_.remove_prefix(comma + 1);
  return true;
}

int64_t CountCells(std::string_view line) { return 1 + std::count(line.begin(), line.end(), ','); }

absl::StatusOr<CsvRows> CsvRows::Open(const SourceFile& file, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(auto reader, SourceReader::OpenText(file, monitor));
  return CsvRows(file.name, std::move(reader));
}

absl::StatusOr<bool> CsvRows::NextLine(std::string_view& line) {
  std::size_t searched = begin_;
  for (;;) {
    const void* newline = std::memchr(buffer_.data() + searched, '\n', end_ - searched);
    if (newline != nullptr || ended_) {
      if (newline == nullptr && begin_ == end_) return false;
      const std::size_t stop =
          newline != nullptr ? static_cast<std::size_t>(static_cast<const char*>(newline) - buffer_.data()) : end_;
      line = std::string_view(buffer_).substr(begin_, stop - begin_);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      begin_ = newline != nullptr ? stop + 1 : end_;
      ++row_;
      return true;
    }
    if (end_ - begin_ > kMaxLineBytes) {
      ++row_;
      return Error(absl::StrCat("the line is longer than ", kMaxLineBytes, " bytes"));
    }
    if (begin_ > 0) {
      buffer_.erase(0, begin_);
      end_ -= begin_;
      begin_ = 0;
    }
    searched = end_;
    buffer_.resize(end_ + kChunkBytes);
    const auto read = reader_->Read(buffer_.data() + end_, kChunkBytes);
    if (!read.ok()) return Annotate(read.status(), absl::StrCat(name_, ":", row_ + 1));
    end_ += *read;
    ended_ = *read == 0;
  }
}

absl::StatusOr<bool> CsvRows::MoreAfterEmptyLines() {
  std::string_view line;
  for (;;) {
    PF_ASSIGN_OR_RETURN(const bool more, NextLine(line));
    if (!more) return false;
    if (!Trim(line).empty()) return true;
  }
}

absl::StatusOr<std::string_view> CsvRows::NextDue(int64_t due, std::string_view why, bool empty_is_row) {
  const int64_t rows = row_;
  std::string_view line;
  PF_ASSIGN_OR_RETURN(const bool any, NextLine(line));
  if (!any) return CountError(rows, due, why);
  if (empty_is_row || !Trim(line).empty()) return line;
  const absl::Status empty = Error("the line is empty");
  PF_ASSIGN_OR_RETURN(const bool more, MoreAfterEmptyLines());
  return more ? empty : CountError(rows, due, why);
}

absl::Status CsvRows::ExpectEnd(int64_t due, std::string_view why) {
  PF_ASSIGN_OR_RETURN(bool more, MoreAfterEmptyLines());
  if (!more) return absl::OkStatus();
  int64_t last = row_;
  while (more) {
    last = row_;
    PF_ASSIGN_OR_RETURN(more, MoreAfterEmptyLines());
  }
  return CountError(last, due, why);
}

absl::StatusOr<bool> CsvRows::Next(std::string_view& line) {
  PF_ASSIGN_OR_RETURN(const bool any, NextLine(line));
  if (!any || !Trim(line).empty()) return any;
  const absl::Status empty = Error("the line is empty");
  PF_ASSIGN_OR_RETURN(const bool more, MoreAfterEmptyLines());
  if (more) return empty;
  return false;
}

absl::Status CsvRows::Error(std::string_view field, std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, ":", row_, ": ", AbslView(field), ": ", AbslView(what)));
}

absl::Status CsvRows::Error(std::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, ":", row_, ": ", AbslView(what)));
}

absl::Status CsvRows::WidthError(int64_t is, int64_t expected, std::string_view why) const {
  return Error("columns", absl::StrCat("the row has ", is, ", expected ", expected, " (", AbslView(why), ")"));
}

absl::Status CsvRows::CountError(int64_t is, int64_t due, std::string_view why) const {
  return absl::InvalidArgumentError(
      absl::StrCat(name_, ": rows: the file has ", is, ", expected ", due, " (", AbslView(why), ")"));
}

namespace {

// Drops a plus sign, which std::from_chars does not accept.
std::string_view WithoutPlus(std::string_view cell) {
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  return cell;
}

template <class T>
IntegerCell Parse(std::string_view cell, T& value) {
  cell = WithoutPlus(cell);
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = std::from_chars(cell.data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return IntegerCell::kNotInteger;
  return error == std::errc() ? IntegerCell::kOk : IntegerCell::kOutOfRange;
}

}  // namespace

IntegerCell ParseInteger(std::string_view cell, int32_t& value) { return Parse(cell, value); }
IntegerCell ParseInteger(std::string_view cell, int64_t& value) { return Parse(cell, value); }

std::optional<float> ParseFinite(std::string_view cell) {
  cell = WithoutPlus(cell);
  float value = 0;
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = fast_float::from_chars(cell.data(), end, value);
  // Newer versions of fast_float also report numbers that round to 0 as out of range.
  const bool is_number = error == std::errc() || (error == std::errc::result_out_of_range && value == 0);
  if (stop != end || !is_number || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::string_view WhyNotFinite(std::string_view cell) {
  cell = WithoutPlus(cell);
  double value = 0;
  const char* end = cell.data() + cell.size();
  const auto [stop, error] = fast_float::from_chars(cell.data(), end, value);
  // A cell without digits, such as "inf", is the word for infinity, not a number out of range.
  const bool has_digits = cell.find_first_of("0123456789") != cell.npos;
  return stop == end && has_digits && error != std::errc::invalid_argument ? kBeyondFloat32 : "is not a finite number";
}

std::optional<std::string> FaultOfWeight(float weight) {
  if (!std::isfinite(weight)) return "is not a finite number";
  if (weight < 0) return absl::StrCat(weight, " is negative; weights of at least 0 are accepted");
  return std::nullopt;
}

std::optional<std::string> ParseEdgeWeight(std::string_view cell, float& weight) {
  const auto value = ParseFinite(cell);
  if (!value) return absl::StrCat(Quote(cell), " ", AbslView(WhyNotFinite(cell)));
  weight = *value;
  return FaultOfWeight(weight);
}

}  // namespace permafrost::data
