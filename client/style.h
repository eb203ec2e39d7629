// The look of text: colours and tables. Each column of a table is as wide as its widest cell. Columns are two spaces
// apart, and lines have no trailing spaces. Threads: everything here is pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace permafrost::client {

// How text may look at its destination.
struct RenderStyle {
  // The width of the terminal in columns.
  int width = 80;
  // True if ANSI colours are used.
  bool color = false;
  // True if bars are drawn with block characters, false for ASCII.
  bool unicode = false;
};

enum class Tone { kPlain, kBold, kDim, kGood, kWarn, kBad };

// Returns `text` in the tone's colour, or unchanged if the style has no colours.
std::string Paint(std::string_view text, Tone tone, const RenderStyle& style);

struct Cell {
  Cell(std::string cell_text, Tone cell_tone = Tone::kPlain) : text(std::move(cell_text)), tone(cell_tone) {}
  Cell(const char* cell_text) : text(cell_text) {}
  std::string text;
  Tone tone = Tone::kPlain;
};

enum class Align { kLeft, kRight };

struct Column {
  std::string header;
  Align align = Align::kLeft;
};

// Makes a header line and one line per row. Every row must have a cell for each column. Each line ends with a
// newline.
std::string RenderTable(const std::vector<Column>& columns, const std::vector<std::vector<Cell>>& rows,
                        const RenderStyle& style);

struct Field {
  std::string name;
  Cell value;
};

// Makes lines of the form "  name     value", with the values aligned.
std::string RenderFields(const std::vector<Field>& fields, const RenderStyle& style);

}  // namespace permafrost::client
