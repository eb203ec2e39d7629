// Tells how the lines of an edge list are read: how they are cut into cells, and what their columns mean.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "data/source/import_options.h"

namespace permafrost::data {

// The characters that divide a line of an edge list into cells.
struct CellMarks {
  char delimiter = ',';  // ' ' means any run of spaces and tabs
  char quote = '\0';     // same as EdgeListOptions::quote
};

// Splits one line of an edge list into cells.
// Threads: one at a time. Borrows the line.
class EdgeCells {
 public:
  EdgeCells(std::string_view line, CellMarks marks);

  // Sets `cell` to the next cell, without the blanks and quotes around it. Returns false after the last cell. If
  // in_scratch() is then true, `cell` is valid until the next call. Otherwise it is valid as long as the line.
  bool Next(std::string_view& cell);
  // Returns true if the cell returned last held doubled quotes. The text of the cell is then stored in this object.
  bool in_scratch() const { return in_scratch_; }
  // Returns what is wrong with the quotes of the cell returned last, or an empty string if nothing is wrong.
  const std::string& fault() const { return fault_; }

 private:
  // Takes a cell that begins with a quote, and returns its text. Afterwards `rest_` begins behind the closing quote.
  std::string_view TakeQuoted();

  std::string_view rest_;
  const CellMarks marks_;
  bool done_ = false, in_scratch_ = false;
  std::string scratch_, fault_;
};

// Finds out how to read the lines of an edge list, from the options and from the file's first lines.
// Threads: pure.

// 2^24, the limit up to which float32 holds every whole number.
inline constexpr float kLargestWholeWeight = 16'777'216;

struct EdgeDialect {
  CellMarks marks;
  char comment = '\0';  // '\0' for none
  // All columns in their order, source and target included.
  std::vector<EdgeColumn> columns = {EdgeColumn::kSource, EdgeColumn::kTarget};
  // True if the weight column is a guess, since no option and no header names it. Whole numbers above
  // kLargestWholeWeight are then refused, since float32 would round them and they are probably times.
  bool guessed_weight = false;
  NodeIds ids = NodeIds::kRows;
  uint64_t max_id = 0;   // the largest accepted id, for kRows and kNumbers
  std::string id_bound;  // where max_id comes from, for messages: " (raw/num-node-list.csv has 5 nodes)"
  bool header = false;   // true if the first line that is neither empty nor a comment is a header, and is skipped
  std::string told;      // a note for the user: how each column is read, and why

  bool Has(EdgeColumn column) const;
};

// Returns true for a line that is empty, blank or a comment.
bool IsPassedOver(std::string_view line, const EdgeDialect& dialect);
// Returns true for a comment.
bool IsComment(std::string_view line, const EdgeDialect& dialect);

// Finds out how to read a file from the options and from `head`, a block of whole lines. `lines_before` lines come
// before `head` in the file, and all of them are empty or comments. The first line of `head` that is neither empty
// nor a comment decides, with the lines after it. Returns nullopt if `head` has no such line. Errors: InvalidArgument
// "NAME:LINE: what".
absl::StatusOr<std::optional<EdgeDialect>> FindDialect(std::string_view name, int64_t lines_before,
                                                       std::string_view head, const EdgeListOptions& options);

}  // namespace permafrost::data
