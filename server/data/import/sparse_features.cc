#include "data/import/sparse_features.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/sort/nameless_file.h"
#include "data/source/csr_matrix.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
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

// Least and largest value of each column, and how many entries it has.
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
  // Values that are not stored are zero.
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
