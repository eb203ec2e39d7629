#include "data/import/edge_cells.h"

#include "absl/strings/str_cat.h"
#include "base/quote.h"

namespace permafrost::data {

std::string_view TrimBlanks(std::string_view text) {
  const auto is_blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

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
  const auto fail = [&](std::string what) {
    fault_ = absl::StrCat("quotes: the cell ", Quote(whole), " ", what,
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
    // Two quotes stand for one.
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

char FindDelimiter(std::string_view line, char quote) {
  bool comma = false, semicolon = false, quoted = false;
  char before = ',';
  for (const char c : line) {
    // A quote opens where a cell may begin; two within one close and open it.
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

}  // namespace permafrost::data
