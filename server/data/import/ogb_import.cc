#include "data/import/import.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/feature_rows.h"
#include "data/import/graph_edges.h"
#include "data/import/graph_set_builder.h"
#include "data/import/split_files.h"
#include "data/source/csv_rows.h"
#include "data/source/source_file.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

struct OgbFiles {
  SourceFile node_counts, edge_counts, edges;
  std::optional<SourceFile> labels, node_features, edge_features, positions;
  std::optional<SplitFiles> split;

  int64_t bytes() const {
    int64_t sum = node_counts.bytes + edge_counts.bytes + edges.bytes;
    if (labels) sum += labels->bytes;
    if (node_features) sum += node_features->bytes;
    if (edge_features) sum += edge_features->bytes;
    if (positions) sum += positions->bytes;
    if (split) sum += split->bytes();
    return sum;
  }
  SourceContents contents(const fs::path& source) const {
    SourceContents all{
        .all = std::nullopt, .folder = source, .read = {}, .known = OgbGraphsNames(split ? split->name : "")};
    for (const auto* file : {&node_counts, &edge_counts, &edges}) all.Add(*file);
    for (const auto* file : {&labels, &node_features, &edge_features, &positions}) all.Add(*file);
    if (split) {
      for (const SourceFile& file : split->files) all.Add(file);
    }
    return all;
  }
};

absl::StatusOr<OgbFiles> FindFiles(const ImportOptions& options) {
  const fs::path& source = options.source;
  OgbFiles files;
  PF_ASSIGN_OR_RETURN(files.node_counts, FindRequiredSourceFile(source, "raw/num-node-list"));
  PF_ASSIGN_OR_RETURN(files.edge_counts, FindRequiredSourceFile(source, "raw/num-edge-list"));
  PF_ASSIGN_OR_RETURN(files.edges, FindRequiredSourceFile(source, "raw/edge"));
  // Labels are optional. Without labels, no job can train on the set, but a model trained on another set can predict
  // for it.
  PF_ASSIGN_OR_RETURN(files.labels, FindSourceFile(source, "raw/graph-label"));
  PF_ASSIGN_OR_RETURN(files.node_features, FindSourceFile(source, "raw/node-feat"));
  PF_ASSIGN_OR_RETURN(files.edge_features, FindSourceFile(source, "raw/edge-feat"));
  PF_ASSIGN_OR_RETURN(files.positions, FindSourceFile(source, "raw/node-pos"));
  PF_ASSIGN_OR_RETURN(files.split, FindSplit(source, options.split));
  return files;
}

class OgbImport {
 public:
  OgbImport(const ImportOptions& options, const OgbFiles& files, const fs::path& directory, ImportMonitor& monitor)
      : options_(options), files_(files), monitor_(monitor), builder_(options, directory, monitor) {}

  absl::StatusOr<GraphSetSummary> Run() {
    PF_RETURN_IF_ERROR(ReadCounts());
    PF_RETURN_IF_ERROR(ReadSplits());
    PF_RETURN_IF_ERROR(ReadLabels());
    if (files_.node_features) PF_RETURN_IF_ERROR(ReadNodeFeatures());
    if (files_.positions) PF_RETURN_IF_ERROR(ReadPositions());
    PF_RETURN_IF_ERROR(ReadEdges());
    return builder_.Finish();
  }

 private:
  static std::string SumOf(const SourceFile& file) { return absl::StrCat("the sum of ", file.name); }

  static absl::StatusOr<int64_t> ParseCount(const CsvRows& rows, std::string_view field, std::string_view line) {
    if (const int64_t cells = CountCells(line); cells != 1) return rows.WidthError(cells, 1, "one number a graph");
    Cells cells(line);
    std::string_view cell;
    cells.Next(cell);
    int64_t count = 0;
    const IntegerCell parsed = ParseInteger(cell, count);
    if (parsed == IntegerCell::kNotInteger) return rows.Error(field, absl::StrCat(Quote(cell), " is not an integer"));
    if (parsed == IntegerCell::kOutOfRange || count < 0 || count > GraphSetBuilder::kMaxGraphSize) {
      return rows.Error(field, absl::StrCat(Shorten(cell), " is outside 0..", GraphSetBuilder::kMaxGraphSize));
    }
    return count;
  }

  absl::Status ReadCounts() {
    PF_ASSIGN_OR_RETURN(CsvRows nodes, CsvRows::Open(files_.node_counts, monitor_));
    std::string_view line;
    for (;;) {
      PF_ASSIGN_OR_RETURN(const bool more, nodes.Next(line));
      if (!more) break;
      PF_ASSIGN_OR_RETURN(const int64_t count, ParseCount(nodes, "nodes", line));
      PF_RETURN_IF_ERROR(builder_.AddNodeCount(nodes, count));
    }
    const int64_t graphs = builder_.num_graphs();
    const std::string why = absl::StrCat("one a graph, as ", files_.node_counts.name);
    PF_ASSIGN_OR_RETURN(CsvRows edges, CsvRows::Open(files_.edge_counts, monitor_));
    for (int64_t g = 0; g < graphs; ++g) {
      PF_ASSIGN_OR_RETURN(line, edges.NextDue(graphs, why));
      PF_ASSIGN_OR_RETURN(const int64_t count, ParseCount(edges, "edges", line));
      PF_RETURN_IF_ERROR(builder_.AddEdgeCount(edges, count));
    }
    PF_RETURN_IF_ERROR(edges.ExpectEnd(graphs, why));
    if (options_.inverse_edges != InverseEdges::kAuto) {
      return builder_.FinishSizes(options_.inverse_edges == InverseEdges::kAdd);
    }
    PF_ASSIGN_OR_RETURN(const bool both, ListsBothDirections());
    monitor_.Note(InverseEdgesNote(!both));
    return builder_.FinishSizes(!both);
  }

  // Returns true if every graph has both directions of its edges. Stops reading at the first graph that lacks the
  // inverse of an edge. Inverses are added for the whole set or not at all, so that all of its graphs have the same
  // kind of edges.
  absl::StatusOr<bool> ListsBothDirections() {
    const int64_t due = builder_.num_source_edges();
    PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(files_.edges, monitor_));
    bool both = true;
    for (int64_t g = 0; both && g < builder_.num_graphs(); ++g) {
      builder_.BeginGraphEdges(g);
      for (int64_t e = 0; e < builder_.SourceEdgesOf(g); ++e) {
        PF_ASSIGN_OR_RETURN(const std::string_view edge, rows.NextDue(due, SumOf(files_.edge_counts)));
        PF_RETURN_IF_ERROR(builder_.edges().Parse(rows, edge));
      }
      both = builder_.edges().HasBothDirections();
    }
    rows.Rewind();
    return both;
  }

  absl::Status ReadSplits() {
    if (!files_.split) return builder_.SetSplit(std::nullopt);
    PF_ASSIGN_OR_RETURN(SplitGraphs split, ReadSplit(*files_.split, builder_.num_graphs(), monitor_));
    return builder_.SetSplit(std::move(split));
  }

  absl::Status ReadLabels() {
    if (!files_.labels) return builder_.FinishLabels();
    const int64_t graphs = builder_.num_graphs();
    const std::string why = absl::StrCat("one a graph, as ", files_.node_counts.name);
    PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(*files_.labels, monitor_));
    std::vector<float> labels;
    for (int64_t g = 0; g < graphs; ++g) {
      // With a single target, an empty line is a missing label.
      PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(graphs, why, /*empty_is_row=*/true));
      PF_RETURN_IF_ERROR(ParseLabels(rows, line, labels));
      PF_RETURN_IF_ERROR(builder_.AddLabels(rows, labels));
    }
    PF_RETURN_IF_ERROR(rows.ExpectEnd(graphs, why));
    return builder_.FinishLabels();
  }

  absl::Status ReadNodeFeatures() {
    const int64_t nodes = builder_.num_nodes();
    const std::string why = SumOf(files_.node_counts);
    for (const DataType type : {DataType::kInt32, DataType::kFloat32}) {
      PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(*files_.node_features, monitor_));
      FeatureRows features(type);
      builder_.BeginNodeFeatures();
      for (int64_t n = 0; n < nodes && !features.needs_floats(); ++n) {
        PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(nodes, why));
        PF_RETURN_IF_ERROR(features.Parse(rows, line));
        PF_RETURN_IF_ERROR(builder_.AddNodeFeatures(features));
      }
      if (features.needs_floats()) {
        rows.Rewind();
        continue;
      }
      PF_RETURN_IF_ERROR(rows.ExpectEnd(nodes, why));
      return builder_.FinishNodeFeatures(features);
    }
    return absl::OkStatus();
  }

  absl::Status ReadPositions() {
    const int64_t nodes = builder_.num_nodes();
    const std::string why = SumOf(files_.node_counts);
    PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(*files_.positions, monitor_));
    FeatureRows positions(DataType::kFloat32);
    for (int64_t n = 0; n < nodes; ++n) {
      PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(nodes, why));
      PF_RETURN_IF_ERROR(positions.Parse(rows, line));
      PF_RETURN_IF_ERROR(builder_.AddPosition(rows, positions.row()));
    }
    return rows.ExpectEnd(nodes, why);
  }

  // Reads edges and their features side by side, since features are stored in the order of the edges within a graph.
  absl::Status ReadEdges() {
    for (const DataType type : {DataType::kInt32, DataType::kFloat32}) {
      PF_ASSIGN_OR_RETURN(const bool done, TryReadEdges(type));
      if (done) break;
    }
    return absl::OkStatus();
  }

  // Reads the edge features as `type`. Returns false if `type` is an integer type and a feature is not an integer.
  absl::StatusOr<bool> TryReadEdges(DataType type) {
    const int64_t due = builder_.num_source_edges();
    const std::string why = SumOf(files_.edge_counts);
    PF_ASSIGN_OR_RETURN(CsvRows edge_rows, CsvRows::Open(files_.edges, monitor_));
    std::optional<CsvRows> feature_rows;
    if (files_.edge_features) {
      PF_ASSIGN_OR_RETURN(feature_rows, CsvRows::Open(*files_.edge_features, monitor_));
    }
    PF_RETURN_IF_ERROR(builder_.BeginEdges());
    FeatureRows features(type);
    for (int64_t g = 0; g < builder_.num_graphs(); ++g) {
      builder_.BeginGraphEdges(g);
      for (int64_t e = 0; e < builder_.SourceEdgesOf(g); ++e) {
        PF_ASSIGN_OR_RETURN(const std::string_view edge, edge_rows.NextDue(due, why));
        PF_RETURN_IF_ERROR(builder_.edges().Parse(edge_rows, edge));
        if (!feature_rows) continue;
        PF_ASSIGN_OR_RETURN(const std::string_view line, feature_rows->NextDue(due, why));
        PF_RETURN_IF_ERROR(features.Parse(*feature_rows, line));
        if (features.needs_floats()) {
          edge_rows.Rewind();
          feature_rows->Rewind();
          return false;
        }
        PF_RETURN_IF_ERROR(builder_.AddEdgeFeatures(*feature_rows, features));
      }
      PF_RETURN_IF_ERROR(builder_.FinishGraphEdges());
    }
    PF_RETURN_IF_ERROR(edge_rows.ExpectEnd(due, why));
    if (feature_rows) PF_RETURN_IF_ERROR(feature_rows->ExpectEnd(due, why));
    PF_RETURN_IF_ERROR(builder_.FinishEdges(features));
    return true;
  }

  const ImportOptions& options_;
  const OgbFiles& files_;
  ImportMonitor& monitor_;
  GraphSetBuilder builder_;
};

class FoundOgbGraphs final : public FoundSource {
 public:
  FoundOgbGraphs(const ImportOptions& options, OgbFiles files) : options_(options), files_(std::move(files)) {}
  int64_t bytes() const override { return files_.bytes(); }
  SourceContents contents() const override { return files_.contents(options_.source); }
  absl::StatusOr<ImportedSummary> Run(const fs::path& directory, ImportMonitor& monitor) override {
    return OgbImport(options_, files_, directory, monitor).Run();
  }

 private:
  const ImportOptions& options_;
  const OgbFiles files_;
};

absl::StatusOr<bool> IsOgbGraphs(const fs::path& directory) {
  return HoldsAny(directory, {"raw/graph-label.csv", "raw/graph-label.csv.gz", "raw/graph-label.csv.zst"});
}

}  // namespace

Importer OgbGraphsImporter() {
  return {.format = ImportFormat::kOgbGraphs,
          .known_by = "raw/graph-label.csv[.gz|.zst]",
          .detect = &IsOgbGraphs,
          .find = &FindAs<FindFiles, FoundOgbGraphs>};
}

}  // namespace permafrost::data
