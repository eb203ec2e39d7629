#include "data/import/edge_lines.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/source/cell_number.h"
#include "data/source/csv_rows.h"
#include "data/store/graph.h"

namespace permafrost::data {
namespace {

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

std::string_view Trim(std::string_view s) {
  while (!s.empty() && IsBlank(s.front())) s.remove_prefix(1);
  while (!s.empty() && IsBlank(s.back())) s.remove_suffix(1);
  return s;
}

// The next cell of a line; false after the last one.
class LineCells {
 public:
  LineCells(std::string_view line, char delimiter) : rest_(line), delimiter_(delimiter) {
    if (delimiter == ' ') rest_ = Trim(rest_);
  }
  bool Next(std::string_view& cell) {
    if (done_) return false;
    const size_t stop = delimiter_ == ' ' ? rest_.find_first_of(" \t") : rest_.find(delimiter_);
    done_ = stop == rest_.npos;
    cell = Trim(rest_.substr(0, stop));
    if (!done_) rest_.remove_prefix(stop + 1);
    if (delimiter_ == ' ') rest_ = Trim(rest_);
    return true;
  }

 private:
  std::string_view rest_;
  const char delimiter_;
  bool done_ = false;
};

int64_t CountColumns(std::string_view line, char delimiter) {
  LineCells cells(line, delimiter);
  std::string_view cell;
  int64_t count = 0;
  while (cells.Next(cell)) ++count;
  return count;
}

// "1, 2 or 3" of cells: "2 columns (source, target)".
std::string Expected(const EdgeDialect& dialect) {
  std::string names = "source, target";
  for (const EdgeColumn column : dialect.columns) {
    absl::StrAppend(&names, ", ", AbslView(kEdgeColumnNames.Name(column)));
  }
  return absl::StrCat(2 + dialect.columns.size(), " (", names, ")");
}

std::optional<std::string> ParseId(std::string_view field, std::string_view cell, const EdgeDialect& dialect,
                                   uint64_t& id) {
  std::string_view digits = cell;
  if (digits.size() > 1 && digits[0] == '+') digits.remove_prefix(1);
  const char* const end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, id);
  const bool in_range = error == std::errc() && id <= dialect.max_id;
  if (stop == end && in_range && !digits.empty()) return std::nullopt;
  const std::string range = absl::StrCat("0..", dialect.max_id, dialect.id_bound);
  int64_t negative = 0;
  const bool is_number =
      (stop == end && error != std::errc::invalid_argument) || ParseInteger(cell, negative) != IntegerCell::kNotInteger;
  if (is_number) return absl::StrCat(AbslView(field), ": ", AbslView(cell), " is outside ", range);
  return absl::StrCat(AbslView(field), ": ", Quote(cell), " is not a node id; a whole number ", range, " is",
                      dialect.id_bound.empty() ? ", or set edge_list.node_ids to text" : "");
}

std::optional<std::string> ParseCell(EdgeColumn column, std::string_view cell, EdgeLine& edge) {
  switch (column) {
    case EdgeColumn::kWeight: {
      const auto weight = ParseFinite(cell);
      if (!weight) return absl::StrCat("weight: ", Quote(cell), " is not a finite number");
      edge.weight = *weight;
      return std::nullopt;
    }
    case EdgeColumn::kTimestamp: {
      const IntegerCell parsed = ParseInteger(cell, edge.timestamp);
      if (parsed == IntegerCell::kOk) return std::nullopt;
      if (parsed == IntegerCell::kOutOfRange) {
        return absl::StrCat("timestamp: ", AbslView(cell), " is outside ", std::numeric_limits<int64_t>::min(), "..",
                            std::numeric_limits<int64_t>::max());
      }
      return absl::StrCat("timestamp: ", Quote(cell), " is not an integer");
    }
    case EdgeColumn::kIgnore:
      return std::nullopt;
  }
  return std::nullopt;
}

// The first line that is neither empty nor a comment, and its number from 1.
struct FirstLine {
  std::string_view text;
  int64_t number = 0;
};
std::optional<FirstLine> FindFirstLine(std::string_view head, const EdgeDialect& dialect) {
  for (int64_t number = 1; !head.empty(); ++number) {
    const size_t stop = std::min(head.find('\n'), head.size() - 1);
    std::string_view line = head.substr(0, stop);
    head.remove_prefix(stop + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (!IsPassedOver(line, dialect)) return FirstLine{line, number};
  }
  return std::nullopt;
}

char FindDelimiter(std::string_view line) {
  for (const char c : {'\t', ',', ';'}) {
    if (line.find(c) != line.npos) return c;
  }
  return ' ';
}

absl::StatusOr<EdgeColumn> ColumnNamed(std::string_view file, int64_t line, int column, std::string_view cell) {
  constexpr std::array<std::pair<std::string_view, EdgeColumn>, 3> kNames = {
      {{"weight", EdgeColumn::kWeight}, {"timestamp", EdgeColumn::kTimestamp}, {"time", EdgeColumn::kTimestamp}}};
  const std::string name = absl::AsciiStrToLower(AbslView(cell));
  for (const auto& [known, is] : kNames) {
    if (name == known) return is;
  }
  return FaultyLine(file, line,
                    {column, absl::StrCat("header: ", Quote(cell),
                                          " is none of weight, timestamp, time; say what the columns are in "
                                          "edge_list.columns")});
}

}  // namespace

bool EdgeDialect::Has(EdgeColumn column) const {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

absl::Status FaultyLine(std::string_view name, int64_t line, const LineFault& fault) {
  return absl::InvalidArgumentError(absl::StrCat(
      AbslView(name), ":", line, ":", fault.column > 0 ? absl::StrCat(fault.column, ":") : "", " ", fault.what));
}

bool IsPassedOver(std::string_view line, const EdgeDialect& dialect) {
  const std::string_view text = Trim(line);
  return text.empty() || (dialect.comment != '\0' && text[0] == dialect.comment);
}

std::optional<LineFault> ParseEdgeLine(std::string_view line, const EdgeDialect& dialect, EdgeLine& edge) {
  LineCells cells(line, dialect.delimiter);
  std::string_view cell;
  const auto width_fault = [&] {
    return LineFault{0, absl::StrCat("columns: the line has ", CountColumns(line, dialect.delimiter), ", expected ",
                                     Expected(dialect))};
  };
  for (int end = 0; end < 2; ++end) {
    const std::string_view field = end == 0 ? "source" : "target";
    if (!cells.Next(cell)) return width_fault();
    if (dialect.ids == NodeIds::kText) {
      if (cell.empty()) return LineFault{end + 1, absl::StrCat(AbslView(field), ": the cell is empty")};
      (end == 0 ? edge.source_text : edge.target_text) = cell;
    } else if (auto fault = ParseId(field, cell, dialect, end == 0 ? edge.source : edge.target)) {
      return LineFault{end + 1, *std::move(fault)};
    }
  }
  for (size_t c = 0; c < dialect.columns.size(); ++c) {
    if (!cells.Next(cell)) return width_fault();
    if (auto fault = ParseCell(dialect.columns[c], cell, edge)) {
      return LineFault{static_cast<int>(c) + 3, *std::move(fault)};
    }
  }
  if (cells.Next(cell)) return width_fault();
  return std::nullopt;
}

absl::StatusOr<std::optional<EdgeDialect>> FindDialect(std::string_view name, int64_t lines_before,
                                                       std::string_view head, const EdgeListOptions& options) {
  EdgeDialect dialect{
      .delimiter = options.delimiter,
      .comment = options.comment,
      .columns = options.columns,
      .ids = options.node_ids,
      .max_id = options.node_ids == NodeIds::kRows ? kMaxNodes - 1 : std::numeric_limits<uint64_t>::max(),
      .id_bound = {}};
  auto first = FindFirstLine(head, dialect);
  if (!first) return std::nullopt;
  first->number += lines_before;
  if (dialect.delimiter == '\0') dialect.delimiter = FindDelimiter(first->text);

  std::vector<std::string_view> cells;
  LineCells split(first->text, dialect.delimiter);
  for (std::string_view cell; split.Next(cell);) cells.push_back(cell);
  if (cells.size() < 2) {
    return FaultyLine(name, first->number,
                      {0, absl::StrCat("columns: the line has one, expected at least 2 (source, target), delimited by ",
                                       options.delimiter == '\0' ? "a tab, comma, semicolon or spaces"
                                                                 : Quote(std::string_view(&dialect.delimiter, 1)))});
  }
  // What looks like a number is meant as one, if a wrong one.
  const auto is_name = [](std::string_view cell) {
    return !cell.empty() && !absl::ascii_isdigit(static_cast<unsigned char>(cell[0])) && cell[0] != '-' &&
           cell[0] != '+';
  };
  dialect.header =
      options.header == Header::kYes ||
      (options.header == Header::kAuto && dialect.ids != NodeIds::kText && is_name(cells[0]) && is_name(cells[1]));
  if (!options.columns.empty() || cells.size() == 2) return dialect;
  if (dialect.header) {
    for (size_t c = 2; c < cells.size(); ++c) {
      PF_ASSIGN_OR_RETURN(const EdgeColumn column, ColumnNamed(name, first->number, static_cast<int>(c) + 1, cells[c]));
      if (dialect.Has(column)) {
        return FaultyLine(name, first->number,
                          {static_cast<int>(c) + 1, absl::StrCat("header: ", Quote(cells[c]), " stands twice")});
      }
      dialect.columns.push_back(column);
    }
  } else if (cells.size() == 3) {
    dialect.columns = {EdgeColumn::kWeight};
  } else {
    return FaultyLine(name, first->number,
                      {0, absl::StrCat("columns: the line has ", cells.size(),
                                       "; without a header say what those after the second are in edge_list.columns (",
                                       kEdgeColumnNames.Accepted(), ")")});
  }
  return dialect;
}

}  // namespace permafrost::data
