#include "data/import/edge_dialect.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/import/edge_text.h"
#include "data/source/csv_rows.h"
#include "data/store/graph.h"

namespace permafrost::data {
namespace {

std::string_view TrimBlanks(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace

EdgeCells::EdgeCells(std::string_view line, CellMarks marks) : rest_(line), marks_(marks) {
  if (marks.delimiter == ' ') rest_ = TrimBlanks(rest_);
}

bool EdgeCells::Next(std::string_view& cell) {
  if (done_) return false;
  in_scratch_ = false;
  fault_.clear();
  const bool at_blanks = marks_.delimiter == ' ';
  if (marks_.quote != '\0') {
    std::string_view begin = rest_;
    while (!begin.empty() && (begin[0] == ' ' || begin[0] == '\t') && begin[0] != marks_.delimiter)
      begin.remove_prefix(1);
    if (!begin.empty() && begin[0] == marks_.quote) {
      rest_ = begin;
      cell = TakeQuoted();
      done_ = rest_.empty();
      if (!done_) rest_.remove_prefix(1);
      if (at_blanks) rest_ = TrimBlanks(rest_);
      return true;
    }
  }
  const size_t stop = at_blanks ? rest_.find_first_of(" \t") : rest_.find(marks_.delimiter);
  done_ = stop == rest_.npos;
  cell = TrimBlanks(rest_.substr(0, stop));
  if (!done_) rest_.remove_prefix(stop + 1);
  if (at_blanks) rest_ = TrimBlanks(rest_);
  return true;
}

std::string_view EdgeCells::TakeQuoted() {
  const std::string_view whole = rest_;
  const std::string_view text = whole.substr(1);
  const auto fail = [&](std::string_view what) {
    fault_ = absl::StrCat("quotes: the cell ", Quote(whole), " ", AbslView(what),
                          "; without an edge_list.quote (--quote none) quotes are read as text");
    rest_ = {};
    return std::string_view();
  };
  scratch_.clear();
  size_t begin = 0, stop = 0;
  for (;;) {
    stop = text.find(marks_.quote, begin);
    if (stop == text.npos) return fail("does not end in its line, and line breaks within a cell are not read");
    if (stop + 1 >= text.size() || text[stop + 1] != marks_.quote) break;
    // Two quotes in a row stand for one quote.
    scratch_.append(text.substr(begin, stop + 1 - begin));
    in_scratch_ = true;
    begin = stop + 2;
  }
  rest_ = text.substr(stop + 1);
  const bool at_blanks = marks_.delimiter == ' ';
  if (!at_blanks) {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t') && rest_[0] != marks_.delimiter)
      rest_.remove_prefix(1);
  }
  const bool ends = rest_.empty() || rest_[0] == marks_.delimiter || (at_blanks && rest_[0] == '\t');
  if (!ends) return fail("goes on after its closing quote");
  if (!in_scratch_) return text.substr(0, stop);
  scratch_.append(text.substr(begin, stop - begin));
  return scratch_;
}

namespace {

// Guesses the delimiter of a line from the text outside quoted cells. A tab wins over a comma, a comma over a
// semicolon, and a semicolon over spaces.
char FindDelimiter(std::string_view line, char quote) {
  bool comma = false, semicolon = false, quoted = false;
  char before = ',';
  for (const char c : line) {
    // A quote opens a quoted cell only where a cell may begin. Two quotes within the cell close it and open it again.
    if (quote != '\0' && c == quote &&
        (quoted || before == quote || before == ',' || before == ';' || before == ' ' || before == '\t')) {
      quoted = !quoted;
    } else if (!quoted) {
      if (c == '\t') return c;
      comma = comma || c == ',';
      semicolon = semicolon || c == ';';
    }
    before = c;
  }
  return comma ? ',' : semicolon ? ';' : ' ';
}

// A name that headers give to a column, in lower case and reduced to letters and digits, and its meaning.
struct KnownColumn {
  std::string_view name;
  EdgeColumn is;
  bool single_sense = true;  // false for a word that may well be the name of a node
};
constexpr KnownColumn kKnownColumns[] = {
    {"source", EdgeColumn::kSource},
    {"src", EdgeColumn::kSource},
    {"from", EdgeColumn::kSource},
    {"u", EdgeColumn::kSource},
    {"sourceid", EdgeColumn::kSource},
    {"srcid", EdgeColumn::kSource},
    {"fromid", EdgeColumn::kSource},
    {"sourcenode", EdgeColumn::kSource},
    {"fromnode", EdgeColumn::kSource},
    {"fromnodeid", EdgeColumn::kSource},
    {"sourcenodeid", EdgeColumn::kSource},
    {"s", EdgeColumn::kSource, false},
    {"sender", EdgeColumn::kSource, false},
    {"target", EdgeColumn::kTarget},
    {"tgt", EdgeColumn::kTarget},
    {"dst", EdgeColumn::kTarget},
    {"dest", EdgeColumn::kTarget},
    {"destination", EdgeColumn::kTarget},
    {"to", EdgeColumn::kTarget},
    {"v", EdgeColumn::kTarget},
    {"targetid", EdgeColumn::kTarget},
    {"dstid", EdgeColumn::kTarget},
    {"toid", EdgeColumn::kTarget},
    {"targetnode", EdgeColumn::kTarget},
    {"tonode", EdgeColumn::kTarget},
    {"tonodeid", EdgeColumn::kTarget},
    {"targetnodeid", EdgeColumn::kTarget},
    {"t", EdgeColumn::kTarget, false},
    {"receiver", EdgeColumn::kTarget, false},
    {"weight", EdgeColumn::kWeight},
    {"edgeweight", EdgeColumn::kWeight},
    {"w", EdgeColumn::kWeight, false},
    {"timestamp", EdgeColumn::kTimestamp},
    {"time", EdgeColumn::kTimestamp},
    {"ts", EdgeColumn::kTimestamp},
    {"unixtime", EdgeColumn::kTimestamp},
    {"unixtimestamp", EdgeColumn::kTimestamp},
    {"epoch", EdgeColumn::kTimestamp},
    {"edgetime", EdgeColumn::kTimestamp},
};

const KnownColumn* FindKnownColumn(std::string_view cell) {
  std::string name;
  for (const char c : cell) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c))) name += absl::ascii_tolower(static_cast<unsigned char>(c));
  }
  const auto* found = std::ranges::find(kKnownColumns, name, &KnownColumn::name);
  return found == std::end(kKnownColumns) ? nullptr : found;
}

// A line that is neither empty nor a comment. `number` counts lines from 1.
struct HeadLine {
  std::string_view text;
  int64_t number = 0;
  std::vector<std::string> cells;
};

// Yields the lines of a text that are neither empty nor comments.
class HeadLines {
 public:
  HeadLines(std::string_view head, const EdgeDialect& dialect) : head_(head), dialect_(dialect) {}
  std::optional<HeadLine> Next() {
    while (!head_.empty()) {
      const size_t stop = std::min(head_.find('\n'), head_.size() - 1);
      std::string_view line = head_.substr(0, stop);
      head_.remove_prefix(stop + 1);
      ++number_;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      if (!IsPassedOver(line, dialect_)) return HeadLine{line, number_, {}};
    }
    return std::nullopt;
  }

 private:
  std::string_view head_;
  const EdgeDialect& dialect_;
  int64_t number_ = 0;
};

// Splits a line into line.cells. Returns an error if a quote is faulty.
absl::Status SplitHeadLine(std::string_view name, const CellMarks& marks, HeadLine& line) {
  EdgeCells split(line.text, marks);
  for (std::string_view cell; split.Next(cell);) {
    line.cells.emplace_back(cell);
    if (!split.fault().empty())
      return FaultyLine(name, line.number, {static_cast<int>(line.cells.size()), split.fault()});
  }
  return absl::OkStatus();
}

// Returns true if a cell is meant as a number, even if it is malformed.
bool LooksLikeNumber(std::string_view cell) {
  if (cell.empty()) return false;
  const char first = cell[0];
  return absl::ascii_isdigit(static_cast<unsigned char>(first)) || first == '-' || first == '+' || first == '.';
}

// Returns true if no cell of the first line looks like a number and some column holds only numbers in all later
// lines.
bool IsTextAboveNumbers(const HeadLine& first, HeadLines rest, const CellMarks& marks) {
  const auto& names = first.cells;
  if (std::ranges::any_of(names, LooksLikeNumber)) return false;
  std::vector<bool> numbers(names.size(), true);
  int64_t lines = 0;
  while (const auto line = rest.Next()) {
    EdgeCells split(line->text, marks);
    std::string_view cell;
    for (size_t c = 0; c < names.size(); ++c) {
      if (!split.Next(cell) || !ParseFinite(cell)) numbers[c] = false;
    }
    ++lines;
    if (std::ranges::find(numbers, true) == numbers.end()) return false;
  }
  return lines > 0;
}

// Reads the meaning of the columns from the names in a header.
class HeaderReader {
 public:
  HeaderReader(std::string_view file, const HeadLine& line) : file_(file), line_(line) {
    for (const std::string& cell : line.cells) names_.push_back(FindKnownColumn(cell));
  }
  // Returns true if the header names a source and a target. With `certain`, only unambiguous names count.
  bool NamesEnds(bool certain) const {
    const auto names = [&](EdgeColumn column) {
      return std::ranges::any_of(names_, [&](const KnownColumn* name) {
        return name != nullptr && name->is == column && (name->single_sense || !certain);
      });
    };
    return names(EdgeColumn::kSource) && names(EdgeColumn::kTarget);
  }
  // Returns the meaning of each column. If the header does not name source and target, they are the first two
  // columns.
  absl::StatusOr<std::vector<EdgeColumn>> Columns() const {
    std::vector<EdgeColumn> columns;
    const bool named = NamesEnds(/*certain=*/false);
    for (size_t c = 0; c < names_.size(); ++c) {
      EdgeColumn is = EdgeColumn::kIgnore;
      if (names_[c] != nullptr) {
        is = names_[c]->is;
      } else if (named || c > 1) {
        return Fail(c, absl::StrCat("is none of source, target, weight, timestamp and what else these are called"));
      } else {
        is = c == 0 ? EdgeColumn::kSource : EdgeColumn::kTarget;
      }
      if (std::ranges::find(columns, is) != columns.end()) {
        return Fail(c, absl::StrCat("makes a second column of ", AbslView(kEdgeColumnNames.Name(is))));
      }
      columns.push_back(is);
    }
    for (const EdgeColumn end : {EdgeColumn::kSource, EdgeColumn::kTarget}) {
      if (std::ranges::find(columns, end) != columns.end()) continue;
      return Fail(0, absl::StrCat("stands in a header without a column of ", AbslView(kEdgeColumnNames.Name(end))));
    }
    return columns;
  }
  // Returns true if the target comes before the source. Call it if the options name only the columns after source and
  // target.
  absl::StatusOr<bool> IsTargetFirst() const {
    if (!NamesEnds(/*certain=*/false)) return false;
    const auto is = [&](size_t c, EdgeColumn column) { return names_[c] != nullptr && names_[c]->is == column; };
    if (is(0, EdgeColumn::kSource) && is(1, EdgeColumn::kTarget)) return false;
    if (is(0, EdgeColumn::kTarget) && is(1, EdgeColumn::kSource)) return true;
    return Fail(0, "stands in a header whose first two columns are not source and target");
  }

 private:
  absl::Status Fail(size_t column, std::string_view what) const {
    return FaultyLine(file_, line_.number,
                      {static_cast<int>(column) + 1,
                       absl::StrCat("header: ", Quote(line_.cells[column]), " ", AbslView(what),
                                    "; say what each column is in edge_list.columns (--columns source,target,...)")});
  }

  const std::string_view file_;
  const HeadLine& line_;
  std::vector<const KnownColumn*> names_;
};

// Returns "a, b, c" for messages, with only the first few cells if there are many.
std::string SomeOf(const std::vector<std::string>& cells) {
  constexpr size_t kShown = 8;
  std::string out;
  for (size_t c = 0; c < std::min(cells.size(), kShown); ++c) {
    absl::StrAppend(&out, c > 0 ? ", " : "", Quote(cells[c]));
  }
  return cells.size() > kShown ? absl::StrCat(out, ", ...") : out;
}

std::string TellColumns(std::string_view name, const EdgeDialect& dialect, const HeadLine& first, bool from_options) {
  std::string columns;
  for (const EdgeColumn column : dialect.columns) {
    absl::StrAppend(&columns, columns.empty() ? "" : ", ", AbslView(kEdgeColumnNames.Name(column)));
  }
  const std::string header = dialect.header ? absl::StrCat("line ", first.number, " is a header: ", SomeOf(first.cells))
                                            : "there is no header";
  return absl::StrCat(AbslView(name), ": columns read as ", columns, from_options ? ", as options say" : "", "; ",
                      header);
}

}  // namespace

bool EdgeDialect::Has(EdgeColumn column) const {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

bool IsPassedOver(std::string_view line, const EdgeDialect& dialect) {
  return TrimBlanks(line).empty() || IsComment(line, dialect);
}

bool IsComment(std::string_view line, const EdgeDialect& dialect) {
  const std::string_view text = TrimBlanks(line);
  return dialect.comment != '\0' && !text.empty() && text[0] == dialect.comment;
}

absl::StatusOr<std::optional<EdgeDialect>> FindDialect(std::string_view name, int64_t lines_before,
                                                       std::string_view head, const EdgeListOptions& options) {
  EdgeDialect dialect{
      .marks = {.delimiter = options.delimiter, .quote = options.quote},
      .comment = options.comment,
      .ids = options.node_ids,
      .max_id = options.node_ids == NodeIds::kRows ? kMaxNodes - 1 : std::numeric_limits<uint64_t>::max(),
      .id_bound = {},
      .told = {}};
  HeadLines lines(head, dialect);
  auto first = lines.Next();
  if (!first) return std::nullopt;
  first->number += lines_before;
  char& delimiter = dialect.marks.delimiter;
  if (delimiter == '\0') delimiter = FindDelimiter(first->text, options.quote);
  PF_RETURN_IF_ERROR(SplitHeadLine(name, dialect.marks, *first));
  const size_t width = first->cells.size();
  if (width < 2) {
    return FaultyLine(name, first->number,
                      {0, absl::StrCat("columns: the line has one, expected at least 2 (source, target), delimited by ",
                                       options.delimiter == '\0' ? "a tab, comma, semicolon or spaces"
                                                                 : Quote(std::string_view(&delimiter, 1)))});
  }

  const HeaderReader header(name, *first);
  const bool numbers = dialect.ids != NodeIds::kText;
  if (options.header == Header::kAuto) {
    const auto find_end = [&](EdgeColumn end, size_t place) {
      const auto found = std::ranges::find(options.columns, end);
      return found == options.columns.end() ? place : static_cast<size_t>(found - options.columns.begin());
    };
    const auto is_text = [&](size_t c) {
      return c < width && !first->cells[c].empty() && !LooksLikeNumber(first->cells[c]);
    };
    dialect.header = header.NamesEnds(/*certain=*/!numbers) ||
                     (numbers ? is_text(find_end(EdgeColumn::kSource, 0)) && is_text(find_end(EdgeColumn::kTarget, 1))
                              : IsTextAboveNumbers(*first, lines, dialect.marks));
  } else {
    dialect.header = options.header == Header::kYes;
  }

  dialect.columns = options.columns;
  if (options.columns.empty()) {
    if (dialect.header) {
      PF_ASSIGN_OR_RETURN(dialect.columns, header.Columns());
    } else if (width <= 3) {
      dialect.columns = {EdgeColumn::kSource, EdgeColumn::kTarget};
      if (width == 3) dialect.columns.push_back(EdgeColumn::kWeight);
      dialect.guessed_weight = width == 3;
    } else {
      return FaultyLine(
          name, first->number,
          {0, absl::StrCat("columns: the line has ", width,
                           "; without a header say what they are in edge_list.columns (--columns): all of them of ",
                           kEdgeColumnNames.Accepted())});
    }
  } else if (!dialect.Has(EdgeColumn::kSource)) {
    bool target_first = false;
    if (dialect.header) {
      PF_ASSIGN_OR_RETURN(target_first, header.IsTargetFirst());
    }
    dialect.columns.insert(dialect.columns.begin(), {EdgeColumn::kSource, EdgeColumn::kTarget});
    if (target_first) std::swap(dialect.columns[0], dialect.columns[1]);
  }
  dialect.told = TellColumns(name, dialect, *first, !options.columns.empty());
  return dialect;
}

}  // namespace permafrost::data
