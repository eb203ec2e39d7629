// The edges of a text file: lines become edges, a block of lines at a time on all threads.
// Nearly every line takes a fast path; an exact one decides about the rest and says what is wrong with it.
// Threads: parsing is pure; a LineBlocks or a source is used by one at a time. Memory: EdgeBlockBytes of text and what
// it parses to.
#pragma once

#include <fast_float/fast_float.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/edge_dialect.h"
#include "data/import/graph_edges.h"
#include "data/import/node_ids.h"
#include "data/source/source_file.h"

namespace permafrost::data {

struct EdgeLine {
  uint64_t source = 0, target = 0;            // of rows and numbers
  std::string_view source_text, target_text;  // of text; of the line, or of `scratch`
  std::string scratch[2];
  float weight = 1;
  int64_t timestamp = 0;
};

// The fault of a line: the cell, from 1 (0: the line as a whole), and "field: what".
struct LineFault {
  int column = 0;
  std::string what;
};

// "NAME:LINE: what", or "NAME:LINE:COLUMN: what".
absl::Status FaultyLine(std::string_view name, int64_t line, const LineFault& fault);

// The line without its end. nullopt: `edge` is filled.
std::optional<LineFault> ParseEdgeLine(std::string_view line, const EdgeDialect& dialect, EdgeLine& edge);
// The place of a fault in a text.
struct TextFault {
  int64_t line = 0;  // from 0
  LineFault fault;
};

namespace edge_lines {

inline const char* SkipBlanks(const char* p) {
  while (*p == ' ' || *p == '\t') ++p;
  return p;
}
// Digits of a number that surely fits; nullptr for anything else.
inline const char* ReadDigits(const char* p, uint64_t& value) {
  constexpr int kSurelyFit = std::numeric_limits<uint64_t>::digits10;
  const char* const begin = p;
  uint64_t v = 0;
  for (unsigned digit; (digit = static_cast<unsigned char>(*p) - unsigned{'0'}) < 10; ++p) v = v * 10 + digit;
  value = v;
  return p == begin || p - begin > kSurelyFit ? nullptr : p;
}

// The fast path for a line with numbers as ids: returns the next line's begin, or nullptr where ParseEdgeLine must
// look. ends_first: source and target stand before all others, in this order, as nearly always.
template <char kDelimiter>
const char* ReadLine(const char* p, const char* end, const EdgeDialect& dialect, bool ends_first, EdgeLine& edge) {
  // '\0' stands for the delimiters that have no fast form, not for a NUL in the text.
  if constexpr (kDelimiter == '\0') return nullptr;
  const auto next_cell = [](const char* q) -> const char* {
    if constexpr (kDelimiter == ' ') return *q == ' ' || *q == '\t' ? SkipBlanks(q) : nullptr;
    // Not tabs, which may be the delimiter.
    while (*q == ' ') ++q;
    if (*q != kDelimiter) return nullptr;
    do ++q;
    while (*q == ' ');
    return q;
  };
  size_t column = 0;
  if (ends_first) {
    p = ReadDigits(p, edge.source);
    if (p != nullptr) p = next_cell(p);
    if (p != nullptr) p = ReadDigits(p, edge.target);
    if (p == nullptr) return nullptr;
    column = 2;
  }
  for (; column < dialect.columns.size(); ++column) {
    if (column > 0) p = next_cell(p);
    if (p == nullptr) return nullptr;
    switch (dialect.columns[column]) {
      case EdgeColumn::kSource:
        p = ReadDigits(p, edge.source);
        if (p == nullptr) return nullptr;
        break;
      case EdgeColumn::kTarget:
        p = ReadDigits(p, edge.target);
        if (p == nullptr) return nullptr;
        break;
      case EdgeColumn::kWeight: {
        const auto [stop, error] = fast_float::from_chars(p, end, edge.weight);
        if (error != std::errc() || !std::isfinite(edge.weight) || edge.weight < 0) return nullptr;
        if (dialect.guessed_weight && std::abs(edge.weight) >= kLargestWholeWeight) return nullptr;
        p = stop;
        break;
      }
      case EdgeColumn::kTimestamp: {
        uint64_t time = 0;
        p = ReadDigits(p, time);
        if (p == nullptr || time > uint64_t{std::numeric_limits<int64_t>::max()}) return nullptr;
        edge.timestamp = static_cast<int64_t>(time);
        break;
      }
      case EdgeColumn::kIgnore:
        // Within quotes a delimiter is text.
        if (*p == dialect.marks.quote || (kDelimiter != '\t' && *p == '\t')) return nullptr;
        while (*p != kDelimiter && *p != '\n' && (kDelimiter != ' ' || *p != '\t')) ++p;
        if (*p == '\n' && p[-1] == '\r') --p;
        break;
    }
  }
  if (edge.source > dialect.max_id || edge.target > dialect.max_id) return nullptr;
  if (*p == '\r') ++p;
  return *p == '\n' ? p + 1 : nullptr;
}

template <char kDelimiter, class Emit>
std::optional<TextFault> ParseText(std::string_view text, const EdgeDialect& dialect, int64_t& comments,
                                   const Emit& emit) {
  const bool ends_first = dialect.columns[0] == EdgeColumn::kSource && dialect.columns[1] == EdgeColumn::kTarget;
  const char* p = text.data();
  const char* const end = p + text.size();
  EdgeLine edge;
  for (int64_t line = 0; p != end; ++line) {
    const char* next = nullptr;
    if (dialect.ids != NodeIds::kText) next = ReadLine<kDelimiter>(p, end, dialect, ends_first, edge);
    if (next == nullptr) {
      const std::string_view rest(p, static_cast<size_t>(end - p));
      std::string_view whole = rest.substr(0, rest.find('\n'));
      next = p + whole.size() + 1;
      if (!whole.empty() && whole.back() == '\r') whole.remove_suffix(1);
      if (IsPassedOver(whole, dialect)) {
        if (IsComment(whole, dialect)) ++comments;
        p = next;
        continue;
      }
      if (auto fault = ParseEdgeLine(whole, dialect, edge)) return TextFault{line, *std::move(fault)};
    }
    emit(edge);
    p = next;
  }
  return std::nullopt;
}

}  // namespace edge_lines

// Calls emit(EdgeLine) for each edge of a text of whole lines, up to its first fault, and adds its comments to
// `comments`.
template <class Emit>
std::optional<TextFault> ParseEdgeText(std::string_view text, const EdgeDialect& dialect, int64_t& comments,
                                       const Emit& emit) {
  switch (dialect.marks.delimiter) {
    case ',':
      return edge_lines::ParseText<','>(text, dialect, comments, emit);
    case '\t':
      return edge_lines::ParseText<'\t'>(text, dialect, comments, emit);
    case ';':
      return edge_lines::ParseText<';'>(text, dialect, comments, emit);
    case ' ':
      return edge_lines::ParseText<' '>(text, dialect, comments, emit);
    default:
      // No cell ends where the fast path looks: every line takes the exact one.
      return edge_lines::ParseText<'\0'>(text, dialect, comments, emit);
  }
}

// A text file as blocks of whole lines, for those who take many lines at once.
// Threads: one at a time. Memory: a block, or the longest line.
class LineBlocks {
 public:
  static absl::StatusOr<LineBlocks> Open(const SourceFile& file, size_t block_bytes, ImportMonitor& monitor);

  // The next lines; each ends with '\n', which is added where the file's last one lacks it. Empty at the end. Valid
  // until the next call. Errors name the file, and the line that could not be read.
  absl::StatusOr<std::string_view> Next();
  // Lines before the block given out last.
  int64_t lines_before() const { return lines_before_; }
  const std::string& name() const { return name_; }
  // Tells the monitor that the file will be read again from its beginning.
  void Rewind() { reader_->Rewind(); }

 private:
  LineBlocks(std::string name, size_t block_bytes, std::unique_ptr<SourceReader> reader)
      : name_(std::move(name)), block_bytes_(block_bytes), reader_(std::move(reader)) {}
  // Reads until the buffer is full or the file at its end.
  absl::Status Fill();

  std::string name_;
  size_t block_bytes_;
  std::unique_ptr<SourceReader> reader_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0, filled_ = 0;
  size_t given_ = 0;  // of the buffer, by the last call
  bool ended_ = false;
  int64_t lines_before_ = 0;
};

// Returns how many bytes of text an import reads at once if it may take `memory_bytes` and makes a record of each line.
size_t EdgeBlockBytes(uint64_t memory_bytes, size_t record_bytes);

// Finds how the file is to be read from its first lines, and reads them only.
absl::StatusOr<EdgeDialect> FindFileDialect(const SourceFile& file, const EdgeListOptions& options,
                                            ImportMonitor& monitor);

struct EdgeTextInput {
  const SourceFile& file;
  const EdgeDialect& dialect;
  uint64_t memory_bytes = 0;             // for blocks, and at most as much for the tables
  const NumberTable* numbers = nullptr;  // NodeIds::kNumbers
  TextTable* texts = nullptr;            // NodeIds::kText: grows
};

// Every number that the file calls a node by, into `table`. Errors: ResourceExhausted where they do not fit.
absl::Status CollectNumbers(const EdgeTextInput& input, NumberTable& table, ImportMonitor& monitor);

template <class Record>
class EdgeTextSource final : public EdgeSource<Record> {
 public:
  static absl::StatusOr<EdgeTextSource> Open(const EdgeTextInput& input, ImportMonitor& monitor);
  absl::StatusOr<bool> Next(std::vector<Record>& edges) override;
  // Edges given out so far.
  uint64_t count() const { return count_; }
  // Comments passed over so far.
  int64_t comments() const { return comments_; }

 private:
  EdgeTextSource(const EdgeTextInput& input, LineBlocks blocks, int threads)
      : input_(input), blocks_(std::move(blocks)), threads_(threads) {}
  absl::Status Parse(std::string_view text, std::vector<Record>& edges);
  Record ToRecord(const EdgeLine& line, NodeId source, NodeId target) const;

  EdgeTextInput input_;
  LineBlocks blocks_;
  int threads_;
  bool header_passed_ = false;
  std::vector<std::vector<Record>> pieces_;
  uint64_t count_ = 0;
  int64_t comments_ = 0;
};

extern template class EdgeTextSource<PlainEdge>;
extern template class EdgeTextSource<WeightedEdge>;
extern template class EdgeTextSource<FullEdge>;

}  // namespace permafrost::data
