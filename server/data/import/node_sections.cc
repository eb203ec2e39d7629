#include "data/import/node_sections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/dense_features.h"
#include "data/import/feature_rows.h"
#include "data/import/renumbering.h"
#include "data/sort/nameless_file.h"
#include "data/source/csv_rows.h"
#include "data/source/npy_array.h"

namespace permafrost::data {
namespace {

// Collects the statistics of labels for the summary, row after row.
class LabelSummary {
 public:
  LabelSummary(uint64_t nodes, LabelledNodes& labelled) : labelled_(labelled) { labelled_.assign(nodes, false); }

  void Take(uint64_t node, std::span<const float> row) {
    for (const float label : row) {
      if (std::isnan(label)) {
        ++missing_;
        continue;
      }
      labelled_[node] = true;
      min_ = std::min<double>(min_, label);
      max_ = std::max<double>(max_, label);
      integers_ = integers_ && label == std::trunc(label);
      // Labels above this limit are not classes, and may not fit in int64.
      constexpr float kExact = 1 << 24;
      if (integers_ && row.size() == 1 && std::abs(label) <= kExact) classes_.Add(0, static_cast<int64_t>(label));
    }
  }
  // Sets the summary's fields about labels, and the classes of `writer`.
  void Set(GraphSummary& summary, uint64_t targets, GraphWriter& writer) const {
    const bool any = min_ <= max_;
    summary.num_targets = static_cast<int64_t>(targets);
    summary.num_missing_labels = missing_;
    summary.min_label = any ? min_ : 0;
    summary.max_label = any ? max_ : 0;
    summary.integer_labels = any && integers_;
    if (!summary.integer_labels || targets != 1) return;
    classes_.Take(0, writer.categories().classes.emplace(CategoryTable{.origin = CategoryOrigin::kClass}));
  }

 private:
  LabelledNodes& labelled_;
  int64_t missing_ = 0;
  double min_ = std::numeric_limits<double>::infinity(), max_ = -std::numeric_limits<double>::infinity();
  bool integers_ = true;
  ValueSets classes_;
};

// Reads labels as floats. Refuses an integer that a float cannot hold, since its class would become another class.
absl::Status ReadLabels(NpyArray& array, std::span<float> labels, std::vector<int64_t>& integers) {
  const uint64_t begin = array.position();
  if (array.header().kind != NpyKind::kFloat) {
    integers.resize(labels.size());
    PF_RETURN_IF_ERROR(array.ReadIntegers(integers));
    for (size_t i = 0; i < labels.size(); ++i) {
      constexpr int64_t kExact = int64_t{1} << std::numeric_limits<float>::digits;
      if (integers[i] < -kExact || integers[i] > kExact) {
        return array.ElementError(begin + i, absl::StrCat(integers[i], " is outside ", -kExact, "..", kExact));
      }
      labels[i] = static_cast<float>(integers[i]);
    }
    return absl::OkStatus();
  }
  PF_RETURN_IF_ERROR(array.ReadFloats(labels));
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::isinf(labels[i])) return array.ElementError(begin + i, "is neither a finite number nor missing (NaN)");
  }
  return absl::OkStatus();
}

// Writes one row per node into a section, through a RowSpool if rows are renumbered.
template <class Element>
class NodeRowSink {
 public:
  NodeRowSink(SectionKind section, ElementType type, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer)
      : section_(section), type_(type), due_(due), monitor_(monitor), writer_(writer) {}

  absl::Status Begin(size_t width) {
    width_ = static_cast<uint32_t>(width);
    if (due_.renumbering.none()) return writer_.Begin(section_, type_, width_);
    PF_ASSIGN_OR_RETURN(spool_, RowSpool::Create({.directory = due_.directory,
                                                  .rows = due_.nodes,
                                                  .row_bytes = width * sizeof(Element),
                                                  .memory_bytes = due_.memory_bytes},
                                                 due_.renumbering, monitor_.stop()));
    return absl::OkStatus();
  }
  absl::Status Append(std::span<const Element> rows) {
    return spool_ ? spool_->Append(std::as_bytes(rows)) : writer_.Append(std::as_bytes(rows));
  }
  absl::Status Finish() {
    if (!spool_) return absl::OkStatus();
    PF_RETURN_IF_ERROR(writer_.Begin(section_, type_, width_));
    return spool_->Drain([this](std::span<const std::byte> rows) { return writer_.Append(rows); });
  }

 private:
  const SectionKind section_;
  const ElementType type_;
  const DueLabels& due_;
  ImportMonitor& monitor_;
  GraphWriter& writer_;
  uint32_t width_ = 0;
  std::optional<RowSpool> spool_;
};

}  // namespace

absl::Status WriteLabelRows(const SourceFile& file, const DueLabels& due_labels, ImportMonitor& monitor,
                            GraphWriter& writer, GraphSummary& summary, LabelledNodes& labelled) {
  const uint64_t nodes = due_labels.nodes;
  const std::string& why = due_labels.why;
  const auto due = static_cast<int64_t>(nodes);
  LabelSummary labels(nodes, labelled);
  NodeRowSink<float> sink(SectionKind::kLabels, ElementType::kFloat32, due_labels, monitor, writer);
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  std::vector<float> row;
  size_t targets = 0;
  for (uint64_t node = 0; node < nodes; ++node) {
    // With a single target, an empty line is a missing label.
    PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(due, why, /*empty_is_row=*/true));
    PF_RETURN_IF_ERROR(ParseLabels(rows, line, row));
    if (node == 0) {
      targets = row.size();
      PF_RETURN_IF_ERROR(sink.Begin(targets));
    }
    if (row.size() != targets) {
      return rows.WidthError(static_cast<int64_t>(row.size()), static_cast<int64_t>(targets), "as the rows before");
    }
    labels.Take(node, row);
    PF_RETURN_IF_ERROR(sink.Append(row));
  }
  PF_RETURN_IF_ERROR(rows.ExpectEnd(due, why));
  PF_RETURN_IF_ERROR(sink.Finish());
  labels.Set(summary, targets, writer);
  return absl::OkStatus();
}

absl::Status WriteLabelArray(const SourceFile& file, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer,
                             GraphSummary& summary, LabelledNodes& labelled) {
  const uint64_t nodes = due.nodes;
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  const auto& shape = array.header().shape;
  const uint64_t targets = shape.size() == 2 ? shape[1] : 1;
  // A row of labels is held in memory, so the number of targets is limited.
  constexpr uint64_t kMostTargets = uint64_t{1} << 20;
  if (shape.empty() || shape.size() > 2 || shape[0] != nodes || targets == 0 || targets > kMostTargets) {
    return array.ShapeError(
        absl::StrCat("[", nodes, "] or [", nodes, ", targets] with 1..", kMostTargets, " targets (", due.why, ")"));
  }
  LabelSummary labels(nodes, labelled);
  NodeRowSink<float> sink(SectionKind::kLabels, ElementType::kFloat32, due, monitor, writer);
  PF_RETURN_IF_ERROR(sink.Begin(targets));
  const uint64_t rows_at_once = std::max<uint64_t>(1, (uint64_t{1} << 18) / targets);
  std::vector<float> piece;
  std::vector<int64_t> integers;
  for (uint64_t node = 0; node < nodes; node += rows_at_once) {
    const uint64_t rows = std::min(rows_at_once, nodes - node);
    piece.resize(rows * targets);
    PF_RETURN_IF_ERROR(ReadLabels(array, piece, integers));
    for (uint64_t r = 0; r < rows; ++r) labels.Take(node + r, std::span(piece).subspan(r * targets, targets));
    PF_RETURN_IF_ERROR(sink.Append(piece));
  }
  PF_RETURN_IF_ERROR(array.ExpectEnd());
  PF_RETURN_IF_ERROR(sink.Finish());
  labels.Set(summary, targets, writer);
  return absl::OkStatus();
}

absl::Status WriteTimeArray(const SourceFile& file, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary) {
  PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(file, /*member=*/"", monitor));
  const auto& shape = array.header().shape;
  if (shape.size() != 1 || shape[0] != due.nodes) {
    return array.ShapeError(absl::StrCat("[", due.nodes, "] (", due.why, ")"));
  }
  NodeRowSink<int64_t> sink(SectionKind::kNodeTimes, ElementType::kInt64, due, monitor, writer);
  PF_RETURN_IF_ERROR(sink.Begin(1));
  constexpr uint64_t kAtOnce = uint64_t{1} << 16;
  std::vector<int64_t> piece;
  for (uint64_t node = 0; node < due.nodes; node += kAtOnce) {
    piece.resize(std::min(kAtOnce, due.nodes - node));
    PF_RETURN_IF_ERROR(array.ReadIntegers(piece));
    PF_RETURN_IF_ERROR(sink.Append(piece));
  }
  PF_RETURN_IF_ERROR(array.ExpectEnd());
  PF_RETURN_IF_ERROR(sink.Finish());
  summary.node_times = true;
  return absl::OkStatus();
}

absl::Status WritePositions(const SourceFile& file, bool is_array, const DueLabels& due, ImportMonitor& monitor,
                            GraphWriter& writer, GraphSummary& summary) {
  PF_ASSIGN_OR_RETURN(const int64_t width,
                      is_array ? FeatureArrayWidth(file, monitor) : FeatureRowsWidth(file, monitor));
  if (width > kMaxPositionColumns) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name, ": ", width, " columns; 1..", kMaxPositionColumns, " are accepted for positions"));
  }
  const DueTable table{.section = SectionKind::kPositions,
                       .rows = due.nodes,
                       .why = due.why,
                       .as = FeatureType::kFloat32,
                       .renumbering = &due.renumbering,
                       .memory_bytes = due.memory_bytes};
  PF_ASSIGN_OR_RETURN(const FeatureSummary written,
                      is_array ? WriteFeatureArray(file, /*bfloat16=*/false, table, due.directory, monitor, writer)
                               : WriteFeatureRows(file, table, due.directory, monitor, writer));
  summary.position_columns = written.width;
  return absl::OkStatus();
}

absl::StatusOr<SplitGraphs> ReadSplitArrays(const std::array<SourceFile, 3>& files, bool masks, uint64_t nodes,
                                            ImportMonitor& monitor) {
  constexpr uint64_t kAtOnce = uint64_t{1} << 16;
  SplitGraphs out{.name = "given", .graphs = {}};
  std::vector<uint8_t> seen(nodes);  // for each node: 1 plus the index of its split, or 0 if it has no split yet
  std::vector<int64_t> piece;
  for (size_t split = 0; split < files.size(); ++split) {
    PF_ASSIGN_OR_RETURN(NpyArray array, NpyArray::Open(files[split], /*member=*/"", monitor));
    const auto& shape = array.header().shape;
    if (shape.size() != 1 || (masks ? shape[0] != nodes : shape[0] > nodes)) {
      return array.ShapeError(masks ? absl::StrCat("[", nodes, "], one a node")
                                    : absl::StrCat("at most [", nodes, "]"));
    }
    const uint64_t count = shape[0];
    for (uint64_t at = 0; at < count; at += piece.size()) {
      piece.resize(std::min(kAtOnce, count - at));
      PF_RETURN_IF_ERROR(array.ReadIntegers(piece));
      for (size_t i = 0; i < piece.size(); ++i) {
        const int64_t value = piece[i];
        if (masks && value == 0) continue;
        if (masks && value != 1) return array.ElementError(at + i, absl::StrCat(value, " is neither 0 nor 1"));
        if (!masks && (value < 0 || static_cast<uint64_t>(value) >= nodes)) {
          return array.ElementError(at + i, absl::StrCat(value, " is outside 0..", nodes - 1));
        }
        const uint64_t node = masks ? at + i : static_cast<uint64_t>(value);
        if (seen[node] != 0) {
          return array.ElementError(at + i,
                                    absl::StrCat("node ", node, " stands already in ", files[seen[node] - 1u].name));
        }
        seen[node] = static_cast<uint8_t>(split + 1);
        out.graphs[split].push_back(static_cast<NodeId>(node));
      }
    }
    PF_RETURN_IF_ERROR(array.ExpectEnd());
  }
  return out;
}

absl::Status WriteSplits(SplitGraphs split, const Renumbering& renumbering, GraphWriter& writer,
                         GraphSummary& summary) {
  constexpr std::array kKinds = {SectionKind::kTrainNodes, SectionKind::kValidNodes, SectionKind::kTestNodes};
  for (size_t i = 0; i < kKinds.size(); ++i) {
    auto& nodes = split.graphs[i];
    for (NodeId& node : nodes) node = renumbering.New(node);
    std::sort(nodes.begin(), nodes.end());
    PF_RETURN_IF_ERROR(writer.Write(kKinds[i], ElementType::kUint32, std::span<const NodeId>(nodes)));
    summary.split_nodes[i] = static_cast<int64_t>(nodes.size());
  }
  summary.split_name = std::move(split.name);
  return absl::OkStatus();
}

SplitGraphs DrawNodeSplit(const ImportOptions& options, const LabelledNodes& labelled) {
  std::vector<NodeId> rows;
  for (size_t node = 0; node < labelled.size(); ++node) {
    if (labelled[node]) rows.push_back(static_cast<NodeId>(node));
  }
  SplitGraphs split = DrawSplit(options, static_cast<int64_t>(rows.size()));
  for (auto& nodes : split.graphs) {
    for (NodeId& node : nodes) node = rows[node];
  }
  return split;
}

namespace {

constexpr size_t kBatch = size_t{1} << 14;

absl::Status ParseIndex(const CsvRows& rows, std::string_view field, std::string_view cell, uint64_t bound,
                        std::string_view why, uint32_t& index) {
  int64_t value = 0;
  const IntegerCell parsed = ParseInteger(cell, value);
  if (parsed == IntegerCell::kNotInteger) return rows.Error(field, absl::StrCat(Quote(cell), " is not an integer"));
  if (parsed == IntegerCell::kOutOfRange || value < 0 || static_cast<uint64_t>(value) >= bound) {
    return rows.Error(field, absl::StrCat(Shorten(cell), " is outside 0..", bound - 1, AbslView(why)));
  }
  index = static_cast<uint32_t>(value);
  return absl::OkStatus();
}

absl::StatusOr<WeightedEdge> ParseEntry(const CsvRows& rows, std::string_view line, int64_t width, uint64_t nodes,
                                        std::string_view why) {
  if (const int64_t cells = CountCells(line); cells != width) {
    return rows.WidthError(cells, width, width == 2 ? "node, feature, as the rows before" : "node, feature, value");
  }
  Cells cells(line);
  std::string_view cell;
  uint32_t node = 0, feature = 0;
  cells.Next(cell);
  PF_RETURN_IF_ERROR(ParseIndex(rows, "node", cell, nodes, why, node));
  cells.Next(cell);
  PF_RETURN_IF_ERROR(ParseIndex(rows, "feature", cell, kMaxFeatureColumns, "", feature));
  WeightedEdge entry{.key = MakeEdgeKey(node, feature), .weight = 1};
  if (width == 3) {
    cells.Next(cell);
    const auto value = ParseFinite(cell);
    if (!value) return rows.Error("value", absl::StrCat(Quote(cell), " ", AbslView(WhyNotFinite(cell))));
    entry.weight = *value;
  }
  return entry;
}

// The smallest and largest value of each column, and its number of entries.
struct ColumnRanges {
  std::vector<double> min, max;
  std::vector<uint64_t> entries;

  explicit ColumnRanges(uint64_t width)
      : min(width, std::numeric_limits<double>::infinity()),
        max(width, -std::numeric_limits<double>::infinity()),
        entries(width) {}
  static constexpr uint64_t kBytesPerColumn = 2 * sizeof(double) + sizeof(uint64_t);

  void Take(uint32_t column, float value) {
    min[column] = std::min<double>(min[column], value);
    max[column] = std::max<double>(max[column], value);
    ++entries[column];
  }
  // Widens the range of each column that has rows without an entry, since these rows hold zeros.
  void TakeZeros(uint64_t rows) {
    for (size_t c = 0; c < min.size(); ++c) {
      if (entries[c] == rows) continue;
      min[c] = std::min(min[c], 0.0);
      max[c] = std::max(max[c], 0.0);
    }
  }
};

}  // namespace

absl::StatusOr<SparseFeaturesImport> SparseFeaturesImport::ReadRows(const SourceFile& file, uint64_t nodes,
                                                                    const std::string& why,
                                                                    const Renumbering& renumbering,
                                                                    const EdgeSorterOptions& sorting,
                                                                    ImportMonitor& monitor) {
  SparseFeaturesImport out(file.name, nodes, renumbering, sorting, monitor);
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  std::vector<WeightedEdge> batch;
  int64_t width = 0;
  for (bool more = true; more;) {
    std::string_view line;
    PF_ASSIGN_OR_RETURN(more, rows.Next(line));
    if (more) {
      if (width == 0) width = CountCells(line) == 2 ? 2 : 3;
      PF_ASSIGN_OR_RETURN(const WeightedEdge entry, ParseEntry(rows, line, width, nodes, why));
      out.width_ = std::max(out.width_, uint64_t{MinorOf(entry.key)} + 1);
      if (entry.weight != 0) {
        batch.push_back(
            {.key = MakeEdgeKey(renumbering.New(MajorOf(entry.key)), MinorOf(entry.key)), .weight = entry.weight});
      }
    }
    if (batch.size() < kBatch && more) continue;
    PF_RETURN_IF_ERROR(out.sorted_->Add(batch));
    out.entries_ += batch.size();
    batch.clear();
  }
  PF_RETURN_IF_ERROR(out.sorted_->Finish());
  return out;
}

absl::StatusOr<SparseFeaturesImport> SparseFeaturesImport::ReadMatrix(const SourceFile& file, uint64_t nodes,
                                                                      const std::string& why,
                                                                      const Renumbering& renumbering,
                                                                      const EdgeSorterOptions& sorting,
                                                                      ImportMonitor& monitor) {
  SparseFeaturesImport out(file.name, nodes, renumbering, sorting, monitor);
  PF_ASSIGN_OR_RETURN(CsrMatrix matrix, CsrMatrix::Open(file, monitor));
  if (matrix.rows() != nodes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.name, ": rows: the matrix has ", matrix.rows(), ", expected ", nodes, why));
  }
  if (matrix.width() > kMaxFeatureColumns) {
    return absl::InvalidArgumentError(absl::StrCat(file.name, ": columns: the matrix has ", matrix.width(),
                                                   ", expected at most ", kMaxFeatureColumns));
  }
  out.width_ = matrix.width();
  std::vector<MatrixEntry> entries;
  std::vector<WeightedEdge> batch;
  for (;;) {
    PF_ASSIGN_OR_RETURN(const bool more, matrix.Next(entries));
    if (!more) break;
    batch.clear();
    for (const MatrixEntry& e : entries) {
      if (e.value != 0) batch.push_back({.key = MakeEdgeKey(renumbering.New(e.row), e.column), .weight = e.value});
    }
    PF_RETURN_IF_ERROR(out.sorted_->Add(batch));
    out.entries_ += batch.size();
  }
  PF_RETURN_IF_ERROR(out.sorted_->Finish());
  return out;
}

absl::Status SparseFeaturesImport::Write(uint64_t width, const std::filesystem::path& directory, ImportMonitor& monitor,
                                         GraphWriter& writer, GraphSummary& summary) {
  if (const uint64_t limit = monitor.limits().memory_bytes; width > limit / ColumnRanges::kBytesPerColumn) {
    return absl::ResourceExhaustedError(absl::StrCat(name_, ": ", width,
                                                     " feature columns take more memory than an import's limit, ",
                                                     limit, " bytes (", ColumnRanges::kBytesPerColumn, " each)"));
  }
  ColumnRanges ranges(width);
  std::vector<uint64_t> offsets(nodes_ + 1);
  WaitingColumn values(directory, monitor.stop());
  bool all_ones = true;
  EdgeKey last = 0;
  std::vector<uint32_t> columns;
  std::vector<float> column_values;
  bool any = false;
  PF_RETURN_IF_ERROR(writer.Begin(SectionKind::kNodeFeatureColumns, ElementType::kUint32));
  for (;;) {
    PF_ASSIGN_OR_RETURN(const std::span<const WeightedEdge> entries, sorted_->Next());
    if (entries.empty()) break;
    columns.clear();
    column_values.clear();
    for (const WeightedEdge& entry : entries) {
      const uint32_t node = MajorOf(entry.key), column = MinorOf(entry.key);
      if (std::exchange(any, true) && entry.key == last) {
        return absl::InvalidArgumentError(
            absl::StrCat(name_, ": node ", renumbering_->Old(node), ": feature ", column, " stands twice"));
      }
      last = entry.key;
      ++offsets[uint64_t{node} + 1];
      ranges.Take(column, entry.weight);
      all_ones = all_ones && entry.weight == 1;
      columns.push_back(column);
      column_values.push_back(entry.weight);
    }
    PF_RETURN_IF_ERROR(values.Append(std::span<const float>(column_values)));
    PF_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(columns))));
  }
  sorted_.reset();
  for (uint64_t node = 0; node < nodes_; ++node) offsets[node + 1] += offsets[node];
  PF_RETURN_IF_ERROR(
      writer.Write(SectionKind::kNodeFeatureOffsets, ElementType::kUint64, std::span<const uint64_t>(offsets)));
  if (!all_ones) {
    PF_RETURN_IF_ERROR(values.MoveTo(writer, SectionKind::kNodeFeatureValues, ElementType::kFloat32));
  }
  ranges.TakeZeros(nodes_);
  summary.node_features = {.type = DataType::kSparse,
                           .width = static_cast<int64_t>(width),
                           .min = std::move(ranges.min),
                           .max = std::move(ranges.max)};
  summary.node_feature_nonzeros = static_cast<int64_t>(entries_);
  return absl::OkStatus();
}

}  // namespace permafrost::data
