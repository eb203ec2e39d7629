#include "client/style.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "client/format.h"

namespace permafrost::client {
namespace {

constexpr int kColumnGap = 2;

// Padding is not coloured, so that text has the same width with and without colours.
void AppendCell(std::string& line, const std::string& text, Tone tone, Align align, int width,
                const RenderStyle& style) {
  const std::string padding(static_cast<size_t>(std::max(0, width - DisplayWidth(text))), ' ');
  const std::string painted = Paint(text, tone, style);
  if (align == Align::kRight) {
    absl::StrAppend(&line, padding, painted);
  } else {
    absl::StrAppend(&line, painted, padding);
  }
}

void EndLine(std::string& out, std::string line) {
  absl::StripTrailingAsciiWhitespace(&line);
  absl::StrAppend(&out, line, "\n");
}

}  // namespace

std::string RenderTable(const std::vector<Column>& columns, const std::vector<std::vector<Cell>>& rows,
                        const RenderStyle& style) {
  std::vector<std::vector<Cell>> lines;
  std::vector<int> widths;
  lines.emplace_back();
  for (const Column& column : columns) {
    lines[0].emplace_back(column.header, Tone::kBold);
    widths.push_back(DisplayWidth(column.header));
  }
  for (const auto& row : rows) {
    lines.push_back(row);
    for (size_t c = 0; c < columns.size(); ++c) {
      lines.back()[c].text = OneLine(row[c].text);
      widths[c] = std::max(widths[c], DisplayWidth(row[c].text));
    }
  }
  std::string out;
  for (const auto& cells : lines) {
    std::string line;
    for (size_t c = 0; c < columns.size(); ++c) {
      if (c > 0) line.append(kColumnGap, ' ');
      AppendCell(line, cells[c].text, cells[c].tone, columns[c].align, widths[c], style);
    }
    EndLine(out, std::move(line));
  }
  return out;
}

std::string RenderFields(const std::vector<Field>& fields, const RenderStyle& style) {
  int width = 0;
  for (const Field& field : fields) width = std::max(width, DisplayWidth(field.name));
  std::string out;
  for (const Field& field : fields) {
    std::string line(kColumnGap, ' ');
    AppendCell(line, field.name, Tone::kDim, Align::kLeft, width, style);
    line.append(kColumnGap, ' ');
    line += Paint(OneLine(field.value.text), field.value.tone, style);
    EndLine(out, std::move(line));
  }
  return out;
}

namespace {

std::string_view Ansi(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kBold:
      return "1";
    case Tone::kDim:
      return "2";
    case Tone::kGood:
      return "32";
    case Tone::kWarn:
      return "33";
    case Tone::kBad:
      return "31";
  }
  return "";
}

}  // namespace

std::string Paint(std::string_view text, Tone tone, const RenderStyle& style) {
  if (!style.color || tone == Tone::kPlain || text.empty()) return std::string(text);
  return absl::StrCat("\x1b[", AbslView(Ansi(tone)), "m", AbslView(text), "\x1b[0m");
}

}  // namespace permafrost::client
