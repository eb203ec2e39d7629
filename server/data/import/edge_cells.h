// The cells of one line of an edge list.
// Threads: one at a time. Borrows the line.
#pragma once

#include <string>
#include <string_view>

namespace permafrost::data {

// The marks by which lines are cut into cells.
struct CellMarks {
  char delimiter = ',';  // ' ': any run of spaces and tabs
  char quote = '\0';     // as EdgeListOptions::quote
};

std::string_view TrimBlanks(std::string_view text);

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

// The delimiter that a line seems to have, outside quoted cells: a tab, else a comma, else a semicolon, else spaces.
char FindDelimiter(std::string_view line, char quote);

}  // namespace permafrost::data
