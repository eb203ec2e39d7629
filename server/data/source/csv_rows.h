// Rows of a headerless CSV file, and the errors that name them.
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

// The cells of a line, split at commas, spaces around them dropped. A line has at least one.
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

  // For a file whose length is known: the next of `due` rows, without its end of line; valid until the next call.
  // `why` tells where the number comes from. An empty line is a row only where `empty_is_row`.
  absl::StatusOr<std::string_view> NextDue(int64_t due, std::string_view why, bool empty_is_row = false);
  // After the last due row: error if more follow, empty lines at the end apart.
  absl::Status ExpectEnd(int64_t due, std::string_view why);

  // For a file of any length: false at its end, empty lines at the end apart.
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
  // Any line; false at the end of the file.
  absl::StatusOr<bool> NextLine(std::string_view& line);
  // Skips lines while they are empty: true if a line that is not follows.
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

// A whole cell of [+-]digits.
IntegerCell ParseInteger(std::string_view cell, int32_t& value);
IntegerCell ParseInteger(std::string_view cell, int64_t& value);
// A whole cell that is a number, rounded to float; nullopt if it is none, or not finite.
std::optional<float> ParseFinite(std::string_view cell);
// Says for messages why ParseFinite refuses a cell: "1e300" is out of float32's range, others are no finite numbers.
std::string_view WhyNotFinite(std::string_view cell);
inline constexpr std::string_view kBeyondFloat32 = "is out of float32's range (3.4e38 at most)";
// Says what is wrong with the weight of an edge, which must be a finite number of at least 0: "-1 is negative, ...".
// nullopt: nothing is wrong.
std::optional<std::string> FaultOfWeight(float weight);
// The same of a cell; nullopt sets `weight`.
std::optional<std::string> ParseEdgeWeight(std::string_view cell, float& weight);

}  // namespace permafrost::data
