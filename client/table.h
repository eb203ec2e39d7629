// Tables for the eye: columns as wide as their widest cell, two spaces apart, no trailing spaces.
// Threads: everything here is pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "client/style.h"

namespace permafrost::client {

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
