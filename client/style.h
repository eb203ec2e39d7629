// How text looks: colours, and tables whose columns are as wide as their widest cell, two spaces apart, without
// trailing spaces. Threads: everything here is pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace permafrost::client {

// Decides how text may look where it goes.
struct RenderStyle {
  // Columns of the terminal.
  int width = 80;
  // ANSI colours.
  bool color = false;
  // Block characters in bars; otherwise ASCII.
  bool unicode = false;
};

enum class Tone { kPlain, kBold, kDim, kGood, kWarn, kBad };

// `text` in the tone's colour where the style has colours.
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

// Every row has a cell for each column. The header line first; each line ends with a newline.
std::string RenderTable(const std::vector<Column>& columns, const std::vector<std::vector<Cell>>& rows,
                        const RenderStyle& style);

struct Field {
  std::string name;
  Cell value;
};

// "  name     value" lines, the values aligned.
std::string RenderFields(const std::vector<Field>& fields, const RenderStyle& style);

}  // namespace permafrost::client
