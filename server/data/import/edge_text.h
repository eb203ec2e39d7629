// Reads edges from a text file. It parses a block of lines at a time, on all threads. Nearly every line takes a fast
// path. An exact parser handles the other lines, and says what is wrong with a faulty line.
// Threads: parsing is pure; a LineBlocks or an EdgeTextSource is used by one thread at a time. Memory: EdgeBlockBytes
// of text, and the records parsed from it.
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
  uint64_t source = 0, target = 0;            // for kRows and kNumbers
  std::string_view source_text, target_text;  // for kText: views into the line, or into `scratch`
  std::string scratch[2];
  float weight = 1;
  int64_t timestamp = 0;
};

// A fault of a line. `column` counts from 1; 0 means the whole line. `what` has the form "field: what".
struct LineFault {
  int column = 0;
  std::string what;
};

// Returns InvalidArgument "NAME:LINE: what" or "NAME:LINE:COLUMN: what".
absl::Status FaultyLine(std::string_view name, int64_t line, const LineFault& fault);

// Parses `line`, which has no line break, into `edge`. Returns the fault of the line, or nullopt if the line is
// valid.
std::optional<LineFault> ParseEdgeLine(std::string_view line, const EdgeDialect& dialect, EdgeLine& edge);
// The first fault of a text, and its line.
struct TextFault {
  int64_t line = 0;  // counted from 0
  LineFault fault;
};

namespace edge_lines {

inline const char* SkipBlanks(const char* p) {
  while (*p == ' ' || *p == '\t') ++p;
  return p;
}
// Sets `value` to the number at `p`, and returns the position after it. Returns nullptr if there is no digit at `p`,
// or if the number has more than 19 digits. A number of at most 19 digits always fits 64 bits.
inline const char* ReadDigits(const char* p, uint64_t& value) {
  constexpr int kSurelyFit = std::numeric_limits<uint64_t>::digits10;
  const char* const begin = p;
  uint64_t v = 0;
  for (unsigned digit; (digit = static_cast<unsigned char>(*p) - unsigned{'0'}) < 10; ++p) v = v * 10 + digit;
  value = v;
  return p == begin || p - begin > kSurelyFit ? nullptr : p;
}

// The fast path for a line whose ids are numbers. Returns the beginning of the next line, or nullptr if ParseEdgeLine
// must parse the line. `ends_first` is true if the source is the first column and the target the second, as in nearly
// every file.
template <char kDelimiter>
const char* ReadLine(const char* p, const char* end, const EdgeDialect& dialect, bool ends_first, EdgeLine& edge) {
  // The template argument '\0' stands for all delimiters without a fast path, not for a NUL in the text.
  if constexpr (kDelimiter == '\0') return nullptr;
  const auto next_cell = [](const char* q) -> const char* {
    if constexpr (kDelimiter == ' ') return *q == ' ' || *q == '\t' ? SkipBlanks(q) : nullptr;
    // Skips spaces only, since a tab may be the delimiter.
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
        // A quoted cell may contain the delimiter, so it needs the exact parser.
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

// Calls emit(EdgeLine) for each edge of a text of whole lines, and adds the number of comment lines to `comments`.
// Stops at the first fault and returns it.
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
      // The fast path does not know this delimiter, so every line takes the exact parser.
      return edge_lines::ParseText<'\0'>(text, dialect, comments, emit);
  }
}

// Reads a text file as blocks of whole lines.
// Threads: one at a time. Memory: one block, or the longest line if it is longer than a block.
class LineBlocks {
 public:
  static absl::StatusOr<LineBlocks> Open(const SourceFile& file, size_t block_bytes, ImportMonitor& monitor);

  // Returns the next lines, or an empty text at the end. Each line ends with '\n', which is added if the file's last
  // line lacks it. The lines are valid until the next call. Errors name the file and the line that could not be read.
  absl::StatusOr<std::string_view> Next();
  // Returns the number of lines before the block that Next returned last.
  int64_t lines_before() const { return lines_before_; }
  const std::string& name() const { return name_; }
  // Tells the monitor that the file will be read again from its beginning.
  void Rewind() { reader_->Rewind(); }

 private:
  LineBlocks(std::string name, size_t block_bytes, std::unique_ptr<SourceReader> reader)
      : name_(std::move(name)), block_bytes_(block_bytes), reader_(std::move(reader)) {}
  // Reads until the buffer is full or the file ends.
  absl::Status Fill();

  std::string name_;
  size_t block_bytes_;
  std::unique_ptr<SourceReader> reader_;
  std::unique_ptr<char[]> buffer_;
  size_t capacity_ = 0, filled_ = 0;
  size_t given_ = 0;  // bytes of the buffer that the last call of Next returned
  bool ended_ = false;
  int64_t lines_before_ = 0;
};

// Returns how many bytes of text to read at once. The import may use `memory_bytes`, and makes a record of
// `record_bytes` from each line.
size_t EdgeBlockBytes(uint64_t memory_bytes, size_t record_bytes);

// Finds out how to read the file. Reads only its first lines.
absl::StatusOr<EdgeDialect> FindFileDialect(const SourceFile& file, const EdgeListOptions& options,
                                            ImportMonitor& monitor);

struct EdgeTextInput {
  const SourceFile& file;
  const EdgeDialect& dialect;
  uint64_t memory_bytes = 0;             // for blocks; the tables of names may take as much again
  const NumberTable* numbers = nullptr;  // set for NodeIds::kNumbers
  TextTable* texts = nullptr;            // set for NodeIds::kText; grows while edges are read
};

// Adds every number that names a node in the file to `table`. Errors: ResourceExhausted if the numbers do not fit.
absl::Status CollectNumbers(const EdgeTextInput& input, NumberTable& table, ImportMonitor& monitor);

template <class Record>
class EdgeTextSource final : public EdgeSource<Record> {
 public:
  static absl::StatusOr<EdgeTextSource> Open(const EdgeTextInput& input, ImportMonitor& monitor);
  absl::StatusOr<bool> Next(std::vector<Record>& edges) override;
  // Returns the number of edges read so far.
  uint64_t count() const { return count_; }
  // Returns the number of comment lines skipped so far.
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
