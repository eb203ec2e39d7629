// Reads the rows of a headerless CSV file, and makes errors that name them.
// Threads: one at a time. Memory: the longest line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/text.h"
#include "data/source/source_file.h"

namespace permafrost::data {

// Gives the cells of a line, split at commas, without the spaces around them. A line has at least one cell.
class Cells {
 public:
  explicit Cells(std::string_view line) : rest_(line) {}
  bool Next(std::string_view& cell);

 private:
  std::string_view rest_;
  bool done_ = false;
};

int64_t CountCells(std::string_view line);

class CsvRows {
 public:
  static absl::StatusOr<CsvRows> Open(const SourceFile& file, ImportMonitor& monitor);

  // For a file whose length is known: returns the next of `due` rows, without its end of line, valid until the next
  // call. `why` tells where the number comes from. An empty line is a row only if `empty_is_row`.
  absl::StatusOr<std::string_view> NextDue(int64_t due, std::string_view why, bool empty_is_row = false);
  // Call after the last due row: returns an error if more rows follow. Empty lines at the end do not count.
  absl::Status ExpectEnd(int64_t due, std::string_view why);

  // For a file of any length: returns false at its end. Empty lines at the end do not count.
  absl::StatusOr<bool> Next(std::string_view& line);

  // InvalidArgument "FILE:ROW: field: what", for the row read last.
  absl::Status Error(std::string_view field, std::string_view what) const;
  // InvalidArgument "FILE:ROW: what".
  absl::Status Error(std::string_view what) const;
  absl::Status WidthError(int64_t is, int64_t expected, std::string_view why) const;

  const std::string& name() const { return name_; }
  int64_t row() const { return row_; }
  // Tells the monitor that the file will be read again from its beginning.
  void Rewind() { reader_->Rewind(); }

 private:
  CsvRows(std::string name, std::unique_ptr<SourceReader> reader)
      : name_(std::move(name)), reader_(std::move(reader)) {}
  // Reads the next line, whatever it holds; returns false at the end of the file.
  absl::StatusOr<bool> NextLine(std::string_view& line);
  // Skips empty lines. Returns true if another line follows.
  absl::StatusOr<bool> MoreAfterEmptyLines();
  absl::Status CountError(int64_t is, int64_t due, std::string_view why) const;

  std::string name_;
  std::unique_ptr<SourceReader> reader_;
  std::string buffer_;
  std::size_t begin_ = 0, end_ = 0;  // text not yet given out
  bool ended_ = false;
  int64_t row_ = 0;
};

// Numbers in cells. Threads: pure.
enum class IntegerCell { kOk, kOutOfRange, kNotInteger };

// Parses a cell that is [+-]digits as a whole.
IntegerCell ParseInteger(std::string_view cell, int32_t& value);
IntegerCell ParseInteger(std::string_view cell, int64_t& value);
// Parses a cell that is a number as a whole, rounded to float; nullopt if it is none, or not finite.
std::optional<float> ParseFinite(std::string_view cell);
// Says for messages why ParseFinite refuses a cell: "1e300" is out of float32's range, others are no finite numbers.
std::string_view WhyNotFinite(std::string_view cell);
inline constexpr std::string_view kBeyondFloat32 = "is out of float32's range (3.4e38 at most)";
// Says what is wrong with the weight of an edge, which must be a finite number of at least 0: "-1 is negative, ...".
// nullopt: nothing is wrong.
std::optional<std::string> FaultOfWeight(float weight);
// Parses a cell as such a weight. Returns its fault, or sets `weight`.
std::optional<std::string> ParseEdgeWeight(std::string_view cell, float& weight);

}  // namespace permafrost::data
