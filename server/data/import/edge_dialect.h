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

// The cells of one line of an edge list.
// Threads: one at a time. Borrows the line.

// The marks by which lines are cut into cells.
struct CellMarks {
  char delimiter = ',';  // ' ': any run of spaces and tabs
  char quote = '\0';     // as EdgeListOptions::quote
};

class EdgeCells {
 public:
  EdgeCells(std::string_view line, CellMarks marks);

  // The next cell without the blanks and the quotes around it; false after the last one. Valid as long as the line is,
  // or until the next call where it is in_scratch().
  bool Next(std::string_view& cell);
  // The cell given out last held quotes and stands in this object.
  bool in_scratch() const { return in_scratch_; }
  // Tells what is wrong with the quotes of the cell given out last. Empty: nothing.
  const std::string& fault() const { return fault_; }

 private:
  // Takes a cell that begins with a quote, and returns what it holds. `rest_` then begins after the closing quote.
  std::string_view TakeQuoted();

  std::string_view rest_;
  const CellMarks marks_;
  bool done_ = false, in_scratch_ = false;
  std::string scratch_, fault_;
};

// Finds how the lines of an edge list are to be read, from the options and from the file's first lines.
// Threads: pure.

// From here on float32 no longer holds every whole number: 2^24.
inline constexpr float kLargestWholeWeight = 16'777'216;

struct EdgeDialect {
  CellMarks marks;
  char comment = '\0';  // '\0': none
  // All columns, source and target among them.
  std::vector<EdgeColumn> columns = {EdgeColumn::kSource, EdgeColumn::kTarget};
  // Nobody said that the weights are weights: whole numbers beyond kLargestWholeWeight are refused.
  bool guessed_weight = false;
  NodeIds ids = NodeIds::kRows;
  uint64_t max_id = 0;   // of rows and numbers
  std::string id_bound;  // why max_id, in parentheses for messages: " (raw/num-node-list.csv has 5 nodes)"
  bool header = false;   // the first line that is no comment is passed over
  std::string told;      // for the user: how each column is read, and why

  bool Has(EdgeColumn column) const;
};

// IsPassedOver is true for a line that is empty or a comment, IsComment only for a comment.
bool IsPassedOver(std::string_view line, const EdgeDialect& dialect);
bool IsComment(std::string_view line, const EdgeDialect& dialect);

// Finds how a file is to be read, from the options, its first line that is no comment and the lines after that.
// `head` is whole lines that come after `lines_before` others. nullopt: every line of `head` is empty or a comment.
// Errors: InvalidArgument, "NAME:LINE: what".
absl::StatusOr<std::optional<EdgeDialect>> FindDialect(std::string_view name, int64_t lines_before,
                                                       std::string_view head, const EdgeListOptions& options);

}  // namespace permafrost::data
