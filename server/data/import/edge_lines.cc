#include "data/import/edge_lines.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
namespace {

int64_t CountColumns(std::string_view line, CellMarks marks) {
  EdgeCells cells(line, marks);
  std::string_view cell;
  int64_t count = 0;
  while (cells.Next(cell)) ++count;
  return count;
}

// "1, 2 or 3" of cells: "2 columns (source, target)".
std::string Expected(const EdgeDialect& dialect) {
  std::string names;
  for (const EdgeColumn column : dialect.columns) {
    absl::StrAppend(&names, names.empty() ? "" : ", ", AbslView(kEdgeColumnNames.Name(column)));
  }
  return absl::StrCat(dialect.columns.size(), " (", names, ")");
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
  if (is_number) return absl::StrCat(AbslView(field), ": ", Shorten(cell), " is outside ", range);
  return absl::StrCat(AbslView(field), ": ", Quote(cell), " is not a node id; a whole number ", range, " is",
                      dialect.id_bound.empty() ? ", or set edge_list.node_ids to text" : "");
}

std::optional<std::string> ParseEdgeEnd(std::string_view field, std::string_view cell, bool in_scratch,
                                        const EdgeDialect& dialect, uint64_t& id, std::string_view& text,
                                        std::string& scratch) {
  if (dialect.ids != NodeIds::kText) return ParseId(field, cell, dialect, id);
  if (cell.empty()) return absl::StrCat(AbslView(field), ": the cell is empty");
  if (const size_t bad = FindInvalidUtf8(cell); bad != cell.npos) {
    return absl::StrCat(AbslView(field), ": ", Quote(cell), " is not UTF-8: byte ", bad + 1, " of it is 0x",
                        absl::Hex(static_cast<unsigned char>(cell[bad]), absl::kZeroPad2));
  }
  if (in_scratch) scratch = cell;
  text = in_scratch ? std::string_view(scratch) : cell;
  return std::nullopt;
}

std::optional<std::string> ParseWeight(std::string_view cell, const EdgeDialect& dialect, float& weight) {
  const auto parsed = ParseFinite(cell);
  if (!parsed) return absl::StrCat("weight: ", Quote(cell), " ", AbslView(WhyNotFinite(cell)));
  weight = *parsed;
  if (const auto fault = FaultOfWeight(weight)) return absl::StrCat("weight: ", *fault);
  if (!dialect.guessed_weight || std::abs(weight) < kLargestWholeWeight) return std::nullopt;
  int64_t whole = 0;
  const IntegerCell integer = ParseInteger(cell, whole);
  const bool is_exact = integer == IntegerCell::kOk && std::abs(static_cast<double>(whole)) <= kLargestWholeWeight;
  if (integer == IntegerCell::kNotInteger || is_exact) return std::nullopt;
  return absl::StrCat(
      "weight: ", Shorten(cell),
      " is a whole number beyond 16777216, and weights are float32, which merges such numbers; say what "
      "the column is in edge_list.columns (--columns source,target,timestamp for times, "
      "source,target,weight for weights all the same)");
}

std::optional<std::string> ParseTimestamp(std::string_view cell, int64_t& timestamp) {
  const IntegerCell parsed = ParseInteger(cell, timestamp);
  if (parsed == IntegerCell::kOk) return std::nullopt;
  if (parsed == IntegerCell::kOutOfRange) {
    return absl::StrCat("timestamp: ", Shorten(cell), " is outside ", std::numeric_limits<int64_t>::min(), "..",
                        std::numeric_limits<int64_t>::max());
  }
  return absl::StrCat("timestamp: ", Quote(cell), " is not an integer");
}

std::optional<std::string> ParseCell(EdgeColumn column, std::string_view cell, bool in_scratch,
                                     const EdgeDialect& dialect, EdgeLine& edge) {
  switch (column) {
    case EdgeColumn::kSource:
      return ParseEdgeEnd("source", cell, in_scratch, dialect, edge.source, edge.source_text, edge.scratch[0]);
    case EdgeColumn::kTarget:
      return ParseEdgeEnd("target", cell, in_scratch, dialect, edge.target, edge.target_text, edge.scratch[1]);
    case EdgeColumn::kWeight:
      return ParseWeight(cell, dialect, edge.weight);
    case EdgeColumn::kTimestamp:
      return ParseTimestamp(cell, edge.timestamp);
    case EdgeColumn::kIgnore:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

absl::Status FaultyLine(std::string_view name, int64_t line, const LineFault& fault) {
  return absl::InvalidArgumentError(absl::StrCat(
      AbslView(name), ":", line, ":", fault.column > 0 ? absl::StrCat(fault.column, ":") : "", " ", fault.what));
}

std::optional<LineFault> ParseEdgeLine(std::string_view line, const EdgeDialect& dialect, EdgeLine& edge) {
  EdgeCells cells(line, dialect.marks);
  std::string_view cell;
  const auto width_fault = [&] {
    return LineFault{
        0, absl::StrCat("columns: the line has ", CountColumns(line, dialect.marks), ", expected ", Expected(dialect))};
  };
  for (size_t c = 0; c < dialect.columns.size(); ++c) {
    if (!cells.Next(cell)) return width_fault();
    const int place = static_cast<int>(c) + 1;
    if (!cells.fault().empty()) return LineFault{place, cells.fault()};
    if (auto fault = ParseCell(dialect.columns[c], cell, cells.in_scratch(), dialect, edge)) {
      return LineFault{place, *std::move(fault)};
    }
  }
  if (cells.Next(cell)) return width_fault();
  return std::nullopt;
}

}  // namespace permafrost::data
