#include "data/import/ogb_import.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/edge_rows.h"
#include "data/import/feature_rows.h"
#include "data/import/split_files.h"
#include "data/import/statistics.h"
#include "data/source/cell_number.h"
#include "data/source/csv_rows.h"
#include "data/source/import_monitor.h"
#include "data/source/source_file.h"
#include "data/store/graph_set_writer.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// So that an edge's index within its graph fits 32 bits even when inverses double it.
constexpr int64_t kMaxGraphSize = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxGraphs = std::numeric_limits<uint32_t>::max();

// What the largest moment takes for each graph: two offsets, its place in a split file and its id there, and the room
// that a vector growing to an unknown length leaves unused.
constexpr uint64_t kBytesPerGraph = 48;
// And for each stored edge of one graph, as EdgeRows keeps and sorts them.
constexpr uint64_t kBytesPerEdge = 56;
// And for each byte of its edges' features, in a vector that grows.
constexpr uint64_t kBytesPerFeatureByte = 3;

struct OgbFiles {
  SourceFile node_counts, edge_counts, edges, labels;
  std::optional<SourceFile> node_features, edge_features;
  std::optional<SplitFiles> split;

  int64_t bytes() const {
    int64_t sum = node_counts.bytes + edge_counts.bytes + edges.bytes + labels.bytes;
    if (node_features) sum += node_features->bytes;
    if (edge_features) sum += edge_features->bytes;
    if (split) {
      for (const SourceFile& file : split->files) sum += file.bytes;
    }
    return sum;
  }
};

absl::StatusOr<OgbFiles> FindFiles(const ImportOptions& options) {
  const fs::path& source = options.source;
  OgbFiles files;
  PF_ASSIGN_OR_RETURN(files.node_counts, FindRequiredSourceFile(source, "raw/num-node-list"));
  PF_ASSIGN_OR_RETURN(files.edge_counts, FindRequiredSourceFile(source, "raw/num-edge-list"));
  PF_ASSIGN_OR_RETURN(files.edges, FindRequiredSourceFile(source, "raw/edge"));
  PF_ASSIGN_OR_RETURN(files.labels, FindRequiredSourceFile(source, "raw/graph-label"));
  PF_ASSIGN_OR_RETURN(files.node_features, FindSourceFile(source, "raw/node-feat"));
  PF_ASSIGN_OR_RETURN(files.edge_features, FindSourceFile(source, "raw/edge-feat"));
  PF_ASSIGN_OR_RETURN(files.split, FindSplit(source, options.split));
  return files;
}

class OgbImport {
 public:
  OgbImport(const ImportOptions& options, const OgbFiles& files, const fs::path& directory, ImportMonitor& monitor)
      : options_(options), files_(files), monitor_(monitor), writer_(directory, monitor.stop()) {}

  absl::StatusOr<GraphSetSummary> Run() {
    PF_RETURN_IF_ERROR(ReadCounts());
    PF_RETURN_IF_ERROR(ReadSplits());
    PF_RETURN_IF_ERROR(ReadLabels());
    if (files_.node_features) PF_RETURN_IF_ERROR(ReadNodeFeatures());
    PF_RETURN_IF_ERROR(ReadEdges());
    summary_.inverse_edges_added = options_.add_inverse_edges;
    PF_RETURN_IF_ERROR(writer_.Finish(summary_));
    return summary_;
  }

 private:
  int64_t num_graphs() const { return static_cast<int64_t>(node_offsets_.size()) - 1; }
  int64_t num_nodes() const { return static_cast<int64_t>(node_offsets_.back()); }
  // In the file, inverses apart.
  int64_t num_file_edges() const { return summary_.all.edges / edge_factor(); }
  int64_t edge_factor() const { return options_.add_inverse_edges ? 2 : 1; }
  int64_t GraphNodes(int64_t graph) const { return SizeAt(node_offsets_, graph); }
  int64_t GraphFileEdges(int64_t graph) const { return SizeAt(edge_offsets_, graph) / edge_factor(); }
  static int64_t SizeAt(const std::vector<uint64_t>& offsets, int64_t graph) {
    const auto g = static_cast<size_t>(graph);
    return static_cast<int64_t>(offsets[g + 1] - offsets[g]);
  }
  static std::string SumOf(const SourceFile& file) { return absl::StrCat("the sum of ", file.name); }

  static absl::StatusOr<int64_t> ParseCount(const CsvRows& rows, std::string_view field, std::string_view line) {
    if (const int64_t cells = CountCells(line); cells != 1) return rows.WidthError(cells, 1, "one number a graph");
    Cells cells(line);
    std::string_view cell;
    cells.Next(cell);
    int64_t count = 0;
    const IntegerCell parsed = ParseInteger(cell, count);
    if (parsed == IntegerCell::kNotInteger) return rows.Error(field, absl::StrCat(Quote(cell), " is not an integer"));
    if (parsed == IntegerCell::kOutOfRange || count < 0 || count > kMaxGraphSize) {
      return rows.Error(field, absl::StrCat(AbslView(cell), " is outside 0..", kMaxGraphSize));
    }
    return count;
  }

  // Whether `count` things of `bytes_each` fit the memory that an import may take.
  absl::Status CheckMemory(const CsvRows& rows, uint64_t count, std::string_view things, uint64_t bytes_each) const {
    const uint64_t limit = monitor_.limits().memory_bytes;
    if (count <= limit / bytes_each) return absl::OkStatus();
    return absl::ResourceExhaustedError(absl::StrCat(rows.name(), ":", rows.row(), ": ", count, " ", AbslView(things),
                                                     " take more memory than an import's limit, ", limit, " bytes (",
                                                     limit / bytes_each, " at ", bytes_each, " bytes each)"));
  }

  absl::Status ReadCounts() {
    node_offsets_ = {0};
    PF_ASSIGN_OR_RETURN(CsvRows nodes, CsvRows::Open(files_.node_counts, monitor_));
    std::string_view line;
    for (;;) {
      PF_ASSIGN_OR_RETURN(const bool more, nodes.Next(line));
      if (!more) break;
      if (num_graphs() == kMaxGraphs) return nodes.Error(absl::StrCat("more than ", kMaxGraphs, " graphs"));
      PF_RETURN_IF_ERROR(CheckMemory(nodes, node_offsets_.size(), "graphs", kBytesPerGraph));
      PF_ASSIGN_OR_RETURN(const int64_t count, ParseCount(nodes, "nodes", line));
      node_offsets_.push_back(node_offsets_.back() + static_cast<uint64_t>(count));
    }
    edge_offsets_.reserve(node_offsets_.size());
    edge_offsets_ = {0};
    const std::string why = absl::StrCat("one a graph, as ", files_.node_counts.name);
    PF_ASSIGN_OR_RETURN(CsvRows edges, CsvRows::Open(files_.edge_counts, monitor_));
    for (int64_t g = 0; g < num_graphs(); ++g) {
      PF_ASSIGN_OR_RETURN(line, edges.NextDue(num_graphs(), why));
      PF_ASSIGN_OR_RETURN(const int64_t count, ParseCount(edges, "edges", line));
      const auto stored = static_cast<uint64_t>(count * edge_factor());
      PF_RETURN_IF_ERROR(CheckMemory(edges, stored, "edges of one graph", kBytesPerEdge));
      edge_offsets_.push_back(edge_offsets_.back() + stored);
    }
    PF_RETURN_IF_ERROR(edges.ExpectEnd(num_graphs(), why));
    PF_RETURN_IF_ERROR(
        writer_.Write(SectionKind::kNodeOffsets, ElementType::kUint64, std::span<const uint64_t>(node_offsets_)));
    PF_RETURN_IF_ERROR(
        writer_.Write(SectionKind::kEdgeOffsets, ElementType::kUint64, std::span<const uint64_t>(edge_offsets_)));
    summary_.all = ComputeStatistics(node_offsets_, edge_offsets_);
    return absl::OkStatus();
  }

  absl::Status ReadSplits() {
    SplitGraphs split;
    if (files_.split) {
      PF_ASSIGN_OR_RETURN(split, ReadSplit(*files_.split, num_graphs(), monitor_));
    } else {
      split = DrawSplit(options_, num_graphs());
    }
    constexpr SectionKind kKinds[] = {SectionKind::kTrainGraphs, SectionKind::kValidGraphs, SectionKind::kTestGraphs};
    for (size_t i = 0; i < split.graphs.size(); ++i) {
      const std::span<const uint32_t> graphs = split.graphs[i];
      PF_RETURN_IF_ERROR(writer_.Write(kKinds[i], ElementType::kUint32, graphs));
      summary_.splits[i] = ComputeStatistics(node_offsets_, edge_offsets_, graphs);
    }
    summary_.split_name = std::move(split.name);
    return absl::OkStatus();
  }

  absl::Status ReadLabels() {
    const std::string why = absl::StrCat("one a graph, as ", files_.node_counts.name);
    PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(files_.labels, monitor_));
    std::vector<float> row;
    for (int64_t g = 0; g < num_graphs(); ++g) {
      // With one target an empty line is a missing label.
      PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(num_graphs(), why, /*empty_is_row=*/true));
      PF_RETURN_IF_ERROR(ParseLabels(rows, line, row));
      if (g == 0) {
        summary_.num_targets = static_cast<int64_t>(row.size());
        PF_RETURN_IF_ERROR(
            writer_.Begin(SectionKind::kLabels, ElementType::kFloat32, static_cast<uint32_t>(row.size())));
      }
      if (const auto targets = static_cast<int64_t>(row.size()); targets != summary_.num_targets) {
        return rows.WidthError(targets, summary_.num_targets, "as the rows before");
      }
      PF_RETURN_IF_ERROR(writer_.Append(SectionKind::kLabels, std::span<const float>(row)));
    }
    PF_RETURN_IF_ERROR(rows.ExpectEnd(num_graphs(), why));
    if (num_graphs() > 0) return absl::OkStatus();
    return writer_.Begin(SectionKind::kLabels, ElementType::kFloat32, 0);
  }

  absl::Status ParseLabels(const CsvRows& rows, std::string_view line, std::vector<float>& row) {
    row.clear();
    Cells cells(line);
    std::string_view cell;
    while (cells.Next(cell)) {
      if (cell.empty() || cell == "nan" || cell == "NaN" || cell == "NA") {
        row.push_back(std::numeric_limits<float>::quiet_NaN());
        ++summary_.num_missing_labels;
        continue;
      }
      const auto value = ParseFinite(cell);
      if (!value) {
        return rows.Error(absl::StrCat("target ", row.size() + 1),
                          absl::StrCat(Quote(cell), " is neither a finite number nor missing (empty, nan or NA)"));
      }
      row.push_back(*value);
    }
    return absl::OkStatus();
  }

  absl::Status BeginFeatures(SectionKind kind, const FeatureSummary& features) {
    const ElementType type = features.type == DataType::kInt32 ? ElementType::kInt32 : ElementType::kFloat32;
    return writer_.Begin(kind, type, static_cast<uint32_t>(features.width));
  }

  absl::Status ReadNodeFeatures() {
    const std::string why = SumOf(files_.node_counts);
    for (const DataType type : {DataType::kInt32, DataType::kFloat32}) {
      PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(*files_.node_features, monitor_));
      FeatureRows features(type);
      for (int64_t n = 0; n < num_nodes() && !features.needs_floats(); ++n) {
        PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(num_nodes(), why));
        PF_RETURN_IF_ERROR(features.Parse(rows, line));
        if (n == 0) PF_RETURN_IF_ERROR(BeginFeatures(SectionKind::kNodeFeatures, features.summary()));
        PF_RETURN_IF_ERROR(writer_.Append(SectionKind::kNodeFeatures, features.row()));
      }
      if (features.needs_floats()) {
        rows.Forget();
        continue;
      }
      PF_RETURN_IF_ERROR(rows.ExpectEnd(num_nodes(), why));
      PF_RETURN_IF_ERROR(features.Finish());
      summary_.node_features = features.summary();
      break;
    }
    return absl::OkStatus();
  }

  // Edges and their features side by side, since features follow the edges' order within a graph.
  absl::Status ReadEdges() {
    for (const DataType type : {DataType::kInt32, DataType::kFloat32}) {
      PF_ASSIGN_OR_RETURN(const bool done, TryReadEdges(type));
      if (done) break;
    }
    return absl::OkStatus();
  }

  // False if the edge features are no integers.
  absl::StatusOr<bool> TryReadEdges(DataType type) {
    const std::string why = SumOf(files_.edge_counts);
    PF_ASSIGN_OR_RETURN(CsvRows edge_rows, CsvRows::Open(files_.edges, monitor_));
    std::optional<CsvRows> feature_rows;
    if (files_.edge_features) {
      PF_ASSIGN_OR_RETURN(feature_rows, CsvRows::Open(*files_.edge_features, monitor_));
    }
    PF_RETURN_IF_ERROR(writer_.Begin(SectionKind::kEdgeSource, ElementType::kUint32));
    PF_RETURN_IF_ERROR(writer_.Begin(SectionKind::kEdgeTarget, ElementType::kUint32));
    EdgeRows edges(options_.add_inverse_edges);
    FeatureRows features(type);
    std::vector<std::byte> graph_features;  // of one graph, in file order
    bool features_begun = false;
    for (int64_t g = 0; g < num_graphs(); ++g) {
      edges.BeginGraph(g, GraphNodes(g));
      graph_features.clear();
      for (int64_t e = 0; e < GraphFileEdges(g); ++e) {
        PF_ASSIGN_OR_RETURN(const std::string_view edge, edge_rows.NextDue(num_file_edges(), why));
        PF_RETURN_IF_ERROR(edges.Parse(edge_rows, edge));
        if (!feature_rows) continue;
        PF_ASSIGN_OR_RETURN(const std::string_view line, feature_rows->NextDue(num_file_edges(), why));
        PF_RETURN_IF_ERROR(features.Parse(*feature_rows, line));
        if (features.needs_floats()) {
          edge_rows.Forget();
          feature_rows->Forget();
          return false;
        }
        if (!std::exchange(features_begun, true)) {
          PF_RETURN_IF_ERROR(BeginFeatures(SectionKind::kEdgeFeatures, features.summary()));
        }
        const uint64_t kept = graph_features.size() + features.row().size();
        PF_RETURN_IF_ERROR(
            CheckMemory(*feature_rows, kept, "bytes of one graph's edge features", kBytesPerFeatureByte));
        graph_features.insert(graph_features.end(), features.row().begin(), features.row().end());
      }
      edges.Sort();
      PF_RETURN_IF_ERROR(writer_.Append(SectionKind::kEdgeSource, edges.source()));
      PF_RETURN_IF_ERROR(writer_.Append(SectionKind::kEdgeTarget, edges.target()));
      if (!features_begun) continue;
      const size_t row_bytes = features.row().size();
      for (const uint32_t row : edges.file_row()) {
        PF_RETURN_IF_ERROR(
            writer_.Append(SectionKind::kEdgeFeatures,
                           std::span<const std::byte>(graph_features).subspan(row * row_bytes, row_bytes)));
      }
    }
    PF_RETURN_IF_ERROR(edge_rows.ExpectEnd(num_file_edges(), why));
    if (feature_rows) PF_RETURN_IF_ERROR(feature_rows->ExpectEnd(num_file_edges(), why));
    PF_RETURN_IF_ERROR(features.Finish());
    summary_.edge_features = features.summary();
    return true;
  }

  const ImportOptions& options_;
  const OgbFiles& files_;
  ImportMonitor& monitor_;
  GraphSetWriter writer_;
  std::vector<uint64_t> node_offsets_, edge_offsets_;
  GraphSetSummary summary_;
};

}  // namespace

absl::StatusOr<GraphSetSummary> ImportOgbGraphs(const ImportOptions& options, const fs::path& directory,
                                                const ImportObserver& observer, std::stop_token stop,
                                                const ImportLimits& limits) {
  PF_RETURN_IF_ERROR(CheckImportOptions(options));
  PF_ASSIGN_OR_RETURN(const OgbFiles files, FindFiles(options));
  ImportMonitor monitor(files.bytes(), observer, std::move(stop), limits);
  return OgbImport(options, files, directory, monitor).Run();
}

}  // namespace permafrost::data
