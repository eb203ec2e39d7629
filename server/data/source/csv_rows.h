// Reads the rows of a headerless CSV file, and makes errors that name the row.
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

// Splits a line into cells at commas and strips the blanks around each cell. Every line has at least one cell.
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

  // Returns the next row of a file that must have `due` rows. The row has no end of line, and is valid until the next
  // call. `why` says where the number `due` comes from, for messages. Without `empty_is_row`, an empty line is an
  // error.
  absl::StatusOr<std::string_view> NextDue(int64_t due, std::string_view why, bool empty_is_row = false);
  // Call it after the last due row. Returns an error if more rows follow. Empty lines at the end do not count as
  // rows.
  absl::Status ExpectEnd(int64_t due, std::string_view why);

  // Sets `line` to the next row of a file of any length; returns false at the end. Empty lines at the end do not
  // count as rows.
  absl::StatusOr<bool> Next(std::string_view& line);

  // Returns InvalidArgument "FILE:ROW: field: what" for the row read last.
  absl::Status Error(std::string_view field, std::string_view what) const;
  // Returns InvalidArgument "FILE:ROW: what" for the row read last.
  absl::Status Error(std::string_view what) const;
  absl::Status WidthError(int64_t is, int64_t expected, std::string_view why) const;

  const std::string& name() const { return name_; }
  int64_t row() const { return row_; }
  // Tells the monitor that the file will be read again from its beginning.
  void Rewind() { reader_->Rewind(); }

 private:
  CsvRows(std::string name, std::unique_ptr<SourceReader> reader)
      : name_(std::move(name)), reader_(std::move(reader)) {}
  // Reads the next line, even an empty one; returns false at the end of the file.
  absl::StatusOr<bool> NextLine(std::string_view& line);
  // Skips empty lines. Returns true if another line follows.
  absl::StatusOr<bool> MoreAfterEmptyLines();
  absl::Status CountError(int64_t is, int64_t due, std::string_view why) const;

  std::string name_;
  std::unique_ptr<SourceReader> reader_;
  std::string buffer_;
  std::size_t begin_ = 0, end_ = 0;  // buffer_[begin_..end_) has not been returned yet
  bool ended_ = false;
  int64_t row_ = 0;
};

// Numbers in cells. Threads: pure.
enum class IntegerCell { kOk, kOutOfRange, kNotInteger };

// Parses a cell as a decimal integer with an optional sign. The whole cell must be the number.
IntegerCell ParseInteger(std::string_view cell, int32_t& value);
IntegerCell ParseInteger(std::string_view cell, int64_t& value);
// Parses a cell as a number, rounded to float. The whole cell must be the number. Returns nullopt if the cell is not
// a number or the number is not finite.
std::optional<float> ParseFinite(std::string_view cell);
// Returns the words for messages about a cell that ParseFinite refuses: kBeyondFloat32 for a number such as "1e300",
// otherwise "is not a finite number".
std::string_view WhyNotFinite(std::string_view cell);
inline constexpr std::string_view kBeyondFloat32 = "is out of float32's range (3.4e38 at most)";
// Returns what is wrong with an edge weight, "-1 is negative, ...", or nullopt if it is valid: finite and at least 0.
std::optional<std::string> FaultOfWeight(float weight);
// Parses a cell as an edge weight into `weight`. Returns what is wrong with the cell, or nullopt if it is valid.
std::optional<std::string> ParseEdgeWeight(std::string_view cell, float& weight);

}  // namespace permafrost::data
