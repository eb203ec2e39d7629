#include "data/import/edge_text.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/parallel.h"
#include "base/status.h"
#include "base/string_view.h"
#include "base/text.h"
#include "data/import/dense_features.h"
#include "data/import/graph_edges.h"
#include "data/import/import.h"
#include "data/source/csv_rows.h"
#include "data/source/source_file.h"

namespace permafrost::data {
namespace {

int64_t CountColumns(std::string_view line, CellMarks marks) {
  EdgeCells cells(line, marks);
  std::string_view cell;
  int64_t count = 0;
  while (cells.Next(cell)) ++count;
  return count;
}

// Returns the columns that a line must have: "2 (source, target)".
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

namespace {

int64_t CountLines(std::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

absl::StatusOr<LineBlocks> LineBlocks::Open(const SourceFile& file, size_t block_bytes, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(auto reader, SourceReader::OpenText(file, monitor));
  return LineBlocks(file.name, block_bytes, std::move(reader));
}

absl::Status LineBlocks::Fill() {
  while (!ended_ && filled_ + 1 < capacity_) {  // one byte is reserved for a last newline
    const auto read = reader_->Read(buffer_.get() + filled_, capacity_ - filled_ - 1);
    if (!read.ok()) {
      const int64_t line = lines_before_ + CountLines(std::string_view(buffer_.get(), filled_)) + 1;
      return Annotate(read.status(), absl::StrCat(name_, ":", line));
    }
    filled_ += *read;
    ended_ = *read == 0;
  }
  if (ended_ && filled_ > 0 && buffer_[filled_ - 1] != '\n') buffer_[filled_++] = '\n';
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> LineBlocks::Next() {
  if (capacity_ == 0) {
    capacity_ = block_bytes_;
    buffer_ = std::make_unique_for_overwrite<char[]>(capacity_);
  }
  lines_before_ += CountLines(std::string_view(buffer_.get(), given_));
  filled_ -= given_;
  std::memmove(buffer_.get(), buffer_.get() + std::exchange(given_, 0), filled_);
  for (;;) {
    PF_RETURN_IF_ERROR(Fill());
    const std::string_view text(buffer_.get(), filled_);
    const size_t newline = text.rfind('\n');
    if (newline != text.npos) {
      given_ = newline + 1;
      return text.substr(0, given_);
    }
    if (filled_ == 0) return std::string_view();
    if (filled_ > kMaxLineBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(name_, ":", lines_before_ + 1, ": the line is longer than ", kMaxLineBytes, " bytes"));
    }
    auto larger = std::make_unique_for_overwrite<char[]>(2 * capacity_);
    std::memcpy(larger.get(), buffer_.get(), filled_);
    buffer_ = std::move(larger);
    capacity_ *= 2;
  }
}

namespace {

// Cuts a text into pieces of whole lines, of about equal length, one for each thread.
std::vector<std::string_view> CutAtLines(std::string_view text, size_t pieces) {
  // Parsing a smaller piece takes less time than waking a thread.
  constexpr size_t kLeastBytes = size_t{1} << 16;
  const size_t bytes = std::max(kLeastBytes, text.size() / pieces + 1);
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const size_t stop = text.size() <= bytes ? text.npos : text.find('\n', bytes);
    const size_t size = stop == text.npos ? text.size() : stop + 1;
    out.push_back(text.substr(0, size));
    text.remove_prefix(size);
  }
  return out;
}

// Returns the first fault in the order of the pieces, as an error that names its line.
absl::Status FirstFault(const LineBlocks& blocks, int64_t lines_before, std::span<const std::string_view> pieces,
                        std::span<const std::optional<TextFault>> faults) {
  for (size_t p = 0; p < pieces.size(); ++p) {
    if (faults[p]) return FaultyLine(blocks.name(), lines_before + faults[p]->line + 1, faults[p]->fault);
    lines_before += CountLines(pieces[p]);
  }
  return absl::OkStatus();
}

// Removes the lines of `text` up to and including the header. Adds the number of removed lines to `lines`, and the
// number of comments among them to `comments`. Sets `passed` once the header was removed.
void PassHeader(const EdgeDialect& dialect, std::string_view& text, bool& passed, int64_t& lines, int64_t& comments) {
  while (!passed && !text.empty()) {
    const size_t stop = text.find('\n');
    std::string_view line = text.substr(0, stop);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    passed = !IsPassedOver(line, dialect);
    if (IsComment(line, dialect)) ++comments;
    text.remove_prefix(stop + 1);
    ++lines;
  }
}

}  // namespace

size_t EdgeBlockBytes(uint64_t memory_bytes, size_t record_bytes) {
  // A line can be as short as four bytes, and for a moment its record is held in two places.
  const uint64_t share = 32 * std::max<uint64_t>(1, record_bytes / 8);
  return static_cast<size_t>(std::clamp<uint64_t>(memory_bytes / share, uint64_t{1} << 18, uint64_t{1} << 23));
}

absl::StatusOr<EdgeDialect> FindFileDialect(const SourceFile& file, const EdgeListOptions& options,
                                            ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(LineBlocks blocks, LineBlocks::Open(file, size_t{1} << 16, monitor));
  // Comments may fill more than one block.
  for (;;) {
    PF_ASSIGN_OR_RETURN(const std::string_view head, blocks.Next());
    PF_ASSIGN_OR_RETURN(auto dialect, FindDialect(file.name, blocks.lines_before(), head, options));
    if (!dialect && !head.empty()) continue;
    blocks.Rewind();
    // A file without edges needs no dialect except its comment character.
    return dialect ? *std::move(dialect) : EdgeDialect{.comment = options.comment, .id_bound = {}, .told = {}};
  }
}

absl::Status CollectNumbers(const EdgeTextInput& input, NumberTable& table, ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(LineBlocks blocks,
                      LineBlocks::Open(input.file, EdgeBlockBytes(input.memory_bytes, sizeof(uint64_t)), monitor));
  bool header_passed = !input.dialect.header;
  int64_t comments = 0;  // not used; comments are counted when the edges are read
  const int threads = monitor.limits().threads;
  const uint64_t most = std::min(input.memory_bytes / NumberTable::kBytesEach, kMaxNodes);
  for (;;) {
    PF_ASSIGN_OR_RETURN(std::string_view text, blocks.Next());
    if (text.empty()) break;
    int64_t lines_before = blocks.lines_before();
    PassHeader(input.dialect, text, header_passed, lines_before, comments);
    const auto pieces = CutAtLines(text, static_cast<size_t>(threads) * 4);
    std::vector<std::optional<TextFault>> faults(pieces.size());
    std::vector<std::vector<uint64_t>> numbers(pieces.size());
    ParallelFor(threads, static_cast<int64_t>(pieces.size()), 1, [&](int64_t piece, int64_t, int) {
      const auto p = static_cast<size_t>(piece);
      auto& own = numbers[p];
      int64_t passed_over = 0;
      faults[p] = ParseEdgeText(pieces[p], input.dialect, passed_over, [&own](const EdgeLine& edge) {
        own.push_back(edge.source);
        own.push_back(edge.target);
      });
      std::sort(own.begin(), own.end());
      own.erase(std::unique(own.begin(), own.end()), own.end());
    });
    PF_RETURN_IF_ERROR(FirstFault(blocks, lines_before, pieces, faults));
    for (const auto& own : numbers) {
      table.Add(own);
      if (table.size_so_far() <= most) continue;
      table.Settle();
      if (table.size_so_far() <= most) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat(input.file.name, ": more than ", most,
                       " nodes with numbers, which is what the memory of the import holds (options.memory_bytes)"));
    }
  }
  blocks.Rewind();
  table.Finish();
  return absl::OkStatus();
}

template <class Record>
absl::StatusOr<EdgeTextSource<Record>> EdgeTextSource<Record>::Open(const EdgeTextInput& input,
                                                                    ImportMonitor& monitor) {
  PF_ASSIGN_OR_RETURN(LineBlocks blocks,
                      LineBlocks::Open(input.file, EdgeBlockBytes(input.memory_bytes, sizeof(Record)), monitor));
  EdgeTextSource source(input, std::move(blocks), monitor.limits().threads);
  source.header_passed_ = !input.dialect.header;
  return source;
}

template <class Record>
Record EdgeTextSource<Record>::ToRecord(const EdgeLine& line, NodeId source, NodeId target) const {
  Record record;
  record.key = MakeEdgeKey(target, source);
  if constexpr (Record::kHasWeight) record.weight = line.weight;
  if constexpr (Record::kHasAll) record.timestamp = line.timestamp;
  return record;
}

template <class Record>
absl::StatusOr<bool> EdgeTextSource<Record>::Next(std::vector<Record>& edges) {
  edges.clear();
  // A block may consist of comments only.
  while (edges.empty()) {
    PF_ASSIGN_OR_RETURN(const std::string_view text, blocks_.Next());
    if (text.empty()) return false;
    PF_RETURN_IF_ERROR(Parse(text, edges));
  }
  if constexpr (Record::kHasAll) {
    for (size_t e = 0; e < edges.size(); ++e) edges[e].row = count_ + e;
  }
  count_ += edges.size();
  return true;
}

template <class Record>
absl::Status EdgeTextSource<Record>::Parse(std::string_view text, std::vector<Record>& edges) {
  const EdgeDialect& dialect = input_.dialect;
  int64_t lines_before = blocks_.lines_before();
  PassHeader(dialect, text, header_passed_, lines_before, comments_);
  const auto texts = CutAtLines(text, static_cast<size_t>(threads_) * 4);
  std::vector<std::optional<TextFault>> faults(texts.size());
  std::vector<int64_t> comments(texts.size());
  pieces_.resize(std::max(pieces_.size(), texts.size()));
  for (auto& piece : pieces_) piece.clear();
  if (input_.texts != nullptr) {
    // Texts get rows in the file's order, so one thread reads them.
    for (size_t p = 0; p < texts.size(); ++p) {
      faults[p] = ParseEdgeText(texts[p], dialect, comments[p], [&](const EdgeLine& line) {
        const NodeId source = input_.texts->Row(line.source_text), target = input_.texts->Row(line.target_text);
        edges.push_back(ToRecord(line, source, target));
      });
      if (faults[p]) break;
      if (input_.texts->size() < kMaxNodes && input_.texts->memory_bytes() <= input_.memory_bytes) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat(input_.file.name, ": the texts of ", input_.texts->size(),
                       " nodes are more than the memory of the import holds (options.memory_bytes)"));
    }
    comments_ = std::accumulate(comments.begin(), comments.end(), comments_);
    return FirstFault(blocks_, lines_before, texts, faults);
  }
  std::atomic<bool> changed = false;
  ParallelFor(threads_, static_cast<int64_t>(texts.size()), 1, [&](int64_t piece, int64_t, int) {
    const auto p = static_cast<size_t>(piece);
    auto& own = pieces_[p];
    if (input_.numbers != nullptr) {
      faults[p] = ParseEdgeText(texts[p], dialect, comments[p], [&](const EdgeLine& line) {
        const NodeId source = input_.numbers->Row(line.source), target = input_.numbers->Row(line.target);
        if (source == NumberTable::kNoRow || target == NumberTable::kNoRow) {
          changed.store(true, std::memory_order_relaxed);
          return;
        }
        own.push_back(ToRecord(line, source, target));
      });
    } else {
      faults[p] = ParseEdgeText(texts[p], dialect, comments[p], [&](const EdgeLine& line) {
        own.push_back(ToRecord(line, static_cast<NodeId>(line.source), static_cast<NodeId>(line.target)));
      });
    }
  });
  PF_RETURN_IF_ERROR(FirstFault(blocks_, lines_before, texts, faults));
  if (changed) return absl::DataLossError(absl::StrCat(blocks_.name(), ": was written to while it was read"));
  comments_ = std::accumulate(comments.begin(), comments.end(), comments_);
  for (size_t p = 0; p < texts.size(); ++p) edges.insert(edges.end(), pieces_[p].begin(), pieces_[p].end());
  return absl::OkStatus();
}

template class EdgeTextSource<PlainEdge>;
template class EdgeTextSource<WeightedEdge>;
template class EdgeTextSource<FullEdge>;

// The rest of this file is the importer of edge lists.

namespace {

namespace fs = std::filesystem;

// Returns a note about skipped comments, or an empty string if there were none.
std::string TellComments(int64_t count, char comment) {
  if (count == 0) return "";
  return absl::StrCat(count, count == 1 ? " line that begins with " : " lines that begin with ",
                      Quote(std::string_view(&comment, 1)), count == 1 ? " was" : " were",
                      " passed over as comments (--comment none reads them)");
}

absl::Status ReadEdgeList(const ImportOptions& options, const SourceFile& file, const fs::path& directory,
                          ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary) {
  PF_RETURN_IF_ERROR(CheckConverted(options, summary.node_features));
  PF_ASSIGN_OR_RETURN(const EdgeDialect dialect, FindFileDialect(file, options.edge_list, monitor));
  const NodeIds ids = dialect.ids;
  EdgesPlan plan{.options = options,
                 .directory = directory,
                 .memory_bytes = ImportMemory(options, monitor.limits()),
                 .weights = dialect.Has(EdgeColumn::kWeight),
                 .timestamps = dialect.Has(EdgeColumn::kTimestamp)};
  Renumbering renumbering;
  NumberTable numbers;
  TextTable texts;
  EdgeTextInput input{.file = file, .dialect = dialect, .memory_bytes = plan.memory_bytes};
  // The names get half of the memory, and the sort the other half.
  if (ids != NodeIds::kRows) input.memory_bytes = plan.memory_bytes /= 2;
  if (ids == NodeIds::kNumbers) {
    PF_RETURN_IF_ERROR(CollectNumbers(input, numbers, monitor));
    input.numbers = &numbers;
    plan.least_nodes = numbers.size();
  } else if (ids == NodeIds::kText) {
    input.texts = &texts;
  } else {
    plan.least_nodes = static_cast<uint64_t>(options.edge_list.num_nodes);
  }
  int64_t comments = 0;
  const absl::Status written = WithRecord(plan, [&]<class Record>() -> absl::Status {
    PF_ASSIGN_OR_RETURN(auto source, EdgeTextSource<Record>::Open(input, monitor));
    PF_RETURN_IF_ERROR(WriteEdges<Record>(source, plan, monitor, writer, summary, renumbering));
    comments = source.comments();
    return absl::OkStatus();
  });
  PF_RETURN_IF_ERROR(written);
  const std::string passed_over = TellComments(comments, dialect.comment);
  if (summary.nodes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(file.name,
                                                   ": edges: there is none, expected at least one line of "
                                                   "source and target, or edge_list.num_nodes above 0",
                                                   passed_over.empty() ? "" : "; ", passed_over));
  }
  if (!dialect.told.empty()) monitor.Note(dialect.told);
  if (!passed_over.empty()) monitor.Note(absl::StrCat(file.name, ": ", passed_over));
  if (ids == NodeIds::kNumbers && !numbers.IsRows()) {
    summary.named = true;
    return numbers.Write(renumbering, writer);
  }
  if (ids == NodeIds::kText) {
    summary.named = true;
    return texts.Write(renumbering, writer);
  }
  return WriteSourceRows(renumbering, writer, summary);
}

class FoundEdgeList final : public FoundGraph {
 public:
  FoundEdgeList(const ImportOptions& options, SourceFile file) : options_(options), file_(std::move(file)) {}
  // A file with numbers as ids is read twice.
  int64_t bytes() const override { return (options_.edge_list.node_ids == NodeIds::kNumbers ? 2 : 1) * file_.bytes; }

 private:
  absl::Status Read(const fs::path& directory, ImportMonitor& monitor, GraphWriter& writer,
                    GraphSummary& summary) override {
    return ReadEdgeList(options_, file_, directory, monitor, writer, summary);
  }

  const ImportOptions& options_;
  const SourceFile file_;
};

absl::StatusOr<std::unique_ptr<FoundSource>> FindEdgeListSource(const ImportOptions& options, const ImportLimits&) {
  PF_ASSIGN_OR_RETURN(auto file, FindFileAt(options.source, options.source.filename().string(), Packing::kFound));
  if (!file) return absl::NotFoundError(absl::StrCat(options.source.string(), ": not found"));
  return std::make_unique<FoundEdgeList>(options, *std::move(file));
}

}  // namespace

Importer EdgeListImporter() {
  return {.format = ImportFormat::kEdgeList, .known_by = "", .detect = nullptr, .find = &FindEdgeListSource};
}

}  // namespace permafrost::data
