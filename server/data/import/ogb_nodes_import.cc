#include "data/import/import.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/dense_features.h"
#include "data/import/edge_text.h"
#include "data/import/graph_edges.h"
#include "data/import/node_ids.h"
#include "data/import/node_sections.h"
#include "data/import/split_files.h"
#include "data/source/csv_rows.h"
#include "data/source/npy_array.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// A table, either as text or as an array.
struct TableFile {
  SourceFile file;
  bool is_array = false;  // NPY, or NPZ for a sparse table
};

struct OgbNodeFiles {
  SourceFile node_counts, edges;
  std::optional<SourceFile> edge_counts;
  std::optional<TableFile> dense_features, sparse_features, positions, labels, edge_weights, edge_features;
  std::optional<SplitFiles> split;
  std::optional<LinkFiles> links;
  std::optional<NameFile> names;

  int64_t bytes() const;
  SourceContents contents(const fs::path& source) const;
};

// Finds a table. An array takes precedence over text, since text may be rounded.
absl::StatusOr<std::optional<TableFile>> FindTable(const fs::path& source, std::string_view stem, bool sparse) {
  PF_ASSIGN_OR_RETURN(auto array, sparse ? FindNpz(source, stem) : FindNpy(source, stem));
  if (array) return TableFile{*std::move(array), /*is_array=*/true};
  PF_ASSIGN_OR_RETURN(auto rows, FindSourceFile(source, stem));
  if (rows) return TableFile{*std::move(rows)};
  return std::nullopt;
}

// Reads a file that must have one row with one number.
absl::StatusOr<uint64_t> ReadCount(const SourceFile& file, std::string_view field, uint64_t most,
                                   ImportMonitor& monitor) {
  constexpr std::string_view kWhy =
      "one graph; a set of graphs has raw/graph-label.csv, or is imported with format ogb-graphs";
  PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(file, monitor));
  PF_ASSIGN_OR_RETURN(const std::string_view line, rows.NextDue(1, kWhy));
  if (const int64_t cells = CountCells(line); cells != 1) return rows.WidthError(cells, 1, "one number");
  Cells cells(line);
  std::string_view cell;
  cells.Next(cell);
  int64_t count = 0;
  const IntegerCell parsed = ParseInteger(cell, count);
  if (parsed == IntegerCell::kNotInteger) return rows.Error(field, absl::StrCat(Quote(cell), " is not an integer"));
  const uint64_t least = field == "nodes" ? 1 : 0;
  if (parsed == IntegerCell::kOutOfRange || count < 0 || static_cast<uint64_t>(count) < least ||
      static_cast<uint64_t>(count) > most) {
    return rows.Error(field, absl::StrCat(Shorten(cell), " is outside ", least, "..", most));
  }
  const auto value = static_cast<uint64_t>(count);
  PF_RETURN_IF_ERROR(rows.ExpectEnd(1, kWhy));
  return value;
}

// Reads one weight per edge from a file beside the edges.
class EdgeWeights {
 public:
  static absl::StatusOr<EdgeWeights> Open(const TableFile& table, ImportMonitor& monitor) {
    EdgeWeights out;
    if (table.is_array) {
      PF_ASSIGN_OR_RETURN(out.array_, NpyArray::Open(table.file, /*member=*/"", monitor));
      const auto& shape = out.array_->header().shape;
      if (shape.empty() || out.array_->header().elements() != shape[0]) return out.array_->ShapeError("[edges]");
    } else {
      PF_ASSIGN_OR_RETURN(out.rows_, CsvRows::Open(table.file, monitor));
    }
    return out;
  }
  absl::Status Read(std::span<float> weights) {
    if (array_) {
      const uint64_t begin = array_->position();
      if (array_->header().shape[0] < begin + weights.size()) return array_->ShapeError("one weight an edge");
      PF_RETURN_IF_ERROR(array_->ReadFloats(weights));
      for (size_t i = 0; i < weights.size(); ++i) {
        if (const auto fault = FaultOfWeight(weights[i])) return array_->ElementError(begin + i, *fault);
      }
      return absl::OkStatus();
    }
    for (float& weight : weights) {
      std::string_view line;
      PF_ASSIGN_OR_RETURN(const bool more, rows_->Next(line));
      if (!more) return rows_->Error("the file ends here, expected one weight an edge");
      if (const int64_t cells = CountCells(line); cells != 1) return rows_->WidthError(cells, 1, "a weight");
      Cells cells(line);
      std::string_view cell;
      cells.Next(cell);
      if (const auto fault = ParseEdgeWeight(cell, weight)) return rows_->Error("weight", *fault);
    }
    return absl::OkStatus();
  }
  absl::Status ExpectEnd(uint64_t edges) {
    if (rows_) return rows_->ExpectEnd(static_cast<int64_t>(edges), "one weight an edge");
    if (array_->header().shape[0] != edges)
      return array_->ShapeError(absl::StrCat("[", edges, "], one weight an edge"));
    return array_->ExpectEnd();
  }

 private:
  std::optional<CsvRows> rows_;
  std::optional<NpyArray> array_;
};

// Yields the edges of raw/edge.csv with the weights of the file beside it.
template <class Record>
class OgbEdgeSource final : public EdgeSource<Record> {
 public:
  OgbEdgeSource(EdgeTextSource<Record> edges, std::optional<EdgeWeights> weights)
      : edges_(std::move(edges)), weights_(std::move(weights)) {}

  absl::StatusOr<bool> Next(std::vector<Record>& edges) override {
    PF_ASSIGN_OR_RETURN(const bool more, edges_.Next(edges));
    if constexpr (Record::kHasWeight) {
      if (weights_) {
        if (!more) PF_RETURN_IF_ERROR(weights_->ExpectEnd(edges_.count()));
        values_.resize(edges.size());
        PF_RETURN_IF_ERROR(weights_->Read(values_));
        for (size_t e = 0; e < edges.size(); ++e) edges[e].weight = values_[e];
      }
    }
    return more;
  }
  uint64_t count() const { return edges_.count(); }

 private:
  EdgeTextSource<Record> edges_;
  std::optional<EdgeWeights> weights_;
  std::vector<float> values_;
};

class OgbNodesImport {
 public:
  OgbNodesImport(const ImportOptions& options, const OgbNodeFiles& files, const fs::path& directory,
                 ImportMonitor& monitor, GraphWriter& writer, GraphSummary& summary)
      : options_(options),
        files_(files),
        directory_(directory),
        monitor_(monitor),
        writer_(writer),
        summary_(summary),
        memory_bytes_(ImportMemory(options, monitor.limits())) {}

  absl::Status Run() {
    PF_ASSIGN_OR_RETURN(nodes_, ReadCount(files_.node_counts, "nodes", kMaxNodes, monitor_));
    PF_RETURN_IF_ERROR(CheckNodes(files_.node_counts.name, nodes_, monitor_.limits(), options_.order));
    nodes_why_ = absl::StrCat("as ", files_.node_counts.name, " says");
    PF_RETURN_IF_ERROR(ReadEdges());
    PF_RETURN_IF_ERROR(ReadNodeFeatures());
    PF_RETURN_IF_ERROR(CheckConverted(options_, summary_.node_features));
    if (files_.positions) {
      PF_RETURN_IF_ERROR(
          WritePositions(files_.positions->file, files_.positions->is_array, LabelsDue(), monitor_, writer_, summary_));
    }
    PF_RETURN_IF_ERROR(ReadLabelsAndSplit());
    if (files_.links) {
      PF_RETURN_IF_ERROR(WriteLinks(*files_.links, nodes_, nodes_why_, renumbering_, monitor_, writer_, summary_));
    }
    return WriteNodeNames(
        files_.names, {.nodes = nodes_, .why = nodes_why_, .renumbering = renumbering_, .memory_bytes = memory_bytes_},
        monitor_, writer_, summary_);
  }

 private:
  absl::Status ReadEdges() {
    EdgesPlan plan{.options = options_,
                   .directory = directory_,
                   .memory_bytes = memory_bytes_,
                   .least_nodes = nodes_,
                   .weights = files_.edge_weights.has_value(),
                   .edge_ids = files_.edge_features.has_value()};
    const EdgeDialect dialect{
        .max_id = nodes_ - 1,
        .id_bound = absl::StrCat(" (", files_.node_counts.name, " has ", nodes_, nodes_ == 1 ? " node)" : " nodes)"),
        .told = {}};
    const EdgeTextInput input{.file = files_.edges, .dialect = dialect, .memory_bytes = memory_bytes_};
    uint64_t edges = 0;
    const absl::Status written = WithRecord(plan, [&]<class Record>() -> absl::Status {
      std::optional<EdgeWeights> weights;
      if (files_.edge_weights) {
        PF_ASSIGN_OR_RETURN(weights, EdgeWeights::Open(*files_.edge_weights, monitor_));
      }
      PF_ASSIGN_OR_RETURN(auto text, EdgeTextSource<Record>::Open(input, monitor_));
      OgbEdgeSource<Record> source(std::move(text), std::move(weights));
      PF_RETURN_IF_ERROR(WriteEdges<Record>(source, plan, monitor_, writer_, summary_, renumbering_));
      edges = source.count();
      return absl::OkStatus();
    });
    PF_RETURN_IF_ERROR(written);
    if (files_.edge_counts) {
      PF_ASSIGN_OR_RETURN(const uint64_t due, ReadCount(*files_.edge_counts, "edges", INT64_MAX, monitor_));
      if (due != edges) {
        return absl::InvalidArgumentError(absl::StrCat(files_.edges.name, ": rows: the file has ", edges, ", expected ",
                                                       due, " (as ", files_.edge_counts->name, " says)"));
      }
    }
    if (!files_.edge_features) return absl::OkStatus();
    // Edge features stay in the order of the source. The edge_ids map each edge to its row; an edge and its inverse
    // share a row.
    PF_ASSIGN_OR_RETURN(summary_.edge_features,
                        WriteTable(*files_.edge_features, {.section = SectionKind::kEdgeFeatures,
                                                           .rows = edges,
                                                           .why = absl::StrCat("as ", files_.edges.name)}));
    return absl::OkStatus();
  }

  absl::StatusOr<FeatureSummary> WriteTable(const TableFile& table, const DueTable& due) {
    return table.is_array ? WriteFeatureArray(table.file, /*bfloat16=*/false, due, directory_, monitor_, writer_)
                          : WriteFeatureRows(table.file, due, directory_, monitor_, writer_);
  }

  absl::Status ReadNodeFeatures() {
    const auto missing = [](std::string_view which) {
      return absl::NotFoundError(
          absl::StrCat("options.node_features: ", AbslView(which), ", but the source has no such table"));
    };
    const NodeFeatureChoice choice = options_.node_features;
    if (choice == NodeFeatureChoice::kDense && !files_.dense_features) return missing("dense");
    if (choice == NodeFeatureChoice::kSparse && !files_.sparse_features) return missing("sparse");
    if (files_.sparse_features && choice != NodeFeatureChoice::kDense) {
      PF_ASSIGN_OR_RETURN(const bool written, TrySparse());
      if (written) return absl::OkStatus();
    }
    if (!files_.dense_features) return absl::OkStatus();
    PF_ASSIGN_OR_RETURN(summary_.node_features,
                        WriteTable(*files_.dense_features, {.section = SectionKind::kNodeFeatures,
                                                            .rows = nodes_,
                                                            .why = nodes_why_,
                                                            .as = options_.feature_type,
                                                            .renumbering = &renumbering_,
                                                            .memory_bytes = memory_bytes_}));
    return absl::OkStatus();
  }

  // Writes the sparse table. Returns false if the dense table must be used instead.
  absl::StatusOr<bool> TrySparse() {
    const SourceFile& file = files_.sparse_features->file;
    const EdgeSorterOptions sorting{.directory = directory_,
                                    .memory_bytes = memory_bytes_,
                                    .add_inverses = false,
                                    .threads = monitor_.limits().threads};
    const std::string why = absl::StrCat(" (", nodes_why_, ")");
    PF_ASSIGN_OR_RETURN(auto sparse,
                        files_.sparse_features->is_array
                            ? SparseFeaturesImport::ReadMatrix(file, nodes_, why, renumbering_, sorting, monitor_)
                            : SparseFeaturesImport::ReadRows(file, nodes_, why, renumbering_, sorting, monitor_));
    const uint64_t width = sparse.width();
    if (files_.dense_features) {
      const TableFile& table = *files_.dense_features;
      PF_ASSIGN_OR_RETURN(const int64_t dense_width, table.is_array ? FeatureArrayWidth(table.file, monitor_)
                                                                    : FeatureRowsWidth(table.file, monitor_));
      const bool same_table = static_cast<uint64_t>(dense_width) == width;
      constexpr double kDense = 0.1;
      const double share =
          static_cast<double>(sparse.entries()) / (static_cast<double>(nodes_) * static_cast<double>(width));
      if (same_table && share >= kDense && options_.node_features == NodeFeatureChoice::kAuto) return false;
    }
    if (width == 0) return false;  // there are no entries
    PF_RETURN_IF_ERROR(sparse.Write(width, directory_, monitor_, writer_, summary_));
    return true;
  }

  DueLabels LabelsDue() const {
    return {.nodes = nodes_,
            .why = nodes_why_,
            .renumbering = renumbering_,
            .directory = directory_,
            .memory_bytes = memory_bytes_};
  }

  absl::Status ReadLabelsAndSplit() {
    LabelledNodes labelled(nodes_);
    if (files_.labels) {
      PF_RETURN_IF_ERROR(files_.labels->is_array
                             ? WriteLabelArray(files_.labels->file, LabelsDue(), monitor_, writer_, summary_, labelled)
                             : WriteLabelRows(files_.labels->file, LabelsDue(), monitor_, writer_, summary_, labelled));
    }
    if (files_.split) {
      PF_ASSIGN_OR_RETURN(SplitGraphs split, ReadSplit(*files_.split, static_cast<int64_t>(nodes_), monitor_, "node"));
      return WriteSplits(std::move(split), renumbering_, writer_, summary_);
    }
    return files_.labels ? WriteSplits(DrawNodeSplit(options_, labelled), renumbering_, writer_, summary_)
                         : absl::OkStatus();
  }

  const ImportOptions& options_;
  const OgbNodeFiles& files_;
  const fs::path& directory_;
  ImportMonitor& monitor_;
  GraphWriter& writer_;
  GraphSummary& summary_;
  const uint64_t memory_bytes_;
  uint64_t nodes_ = 0;
  std::string nodes_why_;
  Renumbering renumbering_;
};

int64_t OgbNodeFiles::bytes() const {
  int64_t sum = node_counts.bytes + edges.bytes;
  if (edge_counts) sum += edge_counts->bytes;
  for (const auto* table : {&dense_features, &sparse_features, &positions, &labels, &edge_weights, &edge_features}) {
    if (*table) sum += (*table)->file.bytes;
  }
  if (split) sum += split->bytes();
  if (links) sum += links->bytes();
  if (names) sum += names->file.bytes;
  return sum;
}

SourceContents OgbNodeFiles::contents(const fs::path& source) const {
  SourceContents all{
      .all = std::nullopt, .folder = source, .read = {}, .known = OgbNodesNames(split ? split->name : "")};
  all.Add(node_counts);
  all.Add(edges);
  all.Add(edge_counts);
  for (const auto* table : {&dense_features, &sparse_features, &positions, &labels, &edge_weights, &edge_features}) {
    if (*table) all.Add((*table)->file);
  }
  if (split) {
    for (const SourceFile& file : split->files) all.Add(file);
  }
  if (links) links->AddTo(all);
  if (names) all.Add(names->file);
  return all;
}

absl::StatusOr<OgbNodeFiles> FindOgbNodeFiles(const ImportOptions& options) {
  const fs::path& source = options.source;
  OgbNodeFiles files;
  PF_ASSIGN_OR_RETURN(files.node_counts, FindRequiredSourceFile(source, "raw/num-node-list"));
  PF_ASSIGN_OR_RETURN(files.edges, FindRequiredSourceFile(source, "raw/edge"));
  PF_ASSIGN_OR_RETURN(files.edge_counts, FindSourceFile(source, "raw/num-edge-list"));
  if (options.node_features != NodeFeatureChoice::kSparse) {
    PF_ASSIGN_OR_RETURN(files.dense_features, FindTable(source, "raw/node-feat", /*sparse=*/false));
  }
  if (options.node_features != NodeFeatureChoice::kDense) {
    PF_ASSIGN_OR_RETURN(files.sparse_features, FindTable(source, "raw/node-feat-sparse", /*sparse=*/true));
  }
  PF_ASSIGN_OR_RETURN(files.positions, FindTable(source, "raw/node-pos", /*sparse=*/false));
  PF_ASSIGN_OR_RETURN(files.labels, FindTable(source, "raw/node-label", /*sparse=*/false));
  PF_ASSIGN_OR_RETURN(files.edge_weights, FindTable(source, "raw/edge-weight", /*sparse=*/false));
  PF_ASSIGN_OR_RETURN(files.edge_features, FindTable(source, "raw/edge-feat", /*sparse=*/false));
  PF_ASSIGN_OR_RETURN(files.links, FindLinkFiles(source));
  PF_ASSIGN_OR_RETURN(files.names, FindNameFile(source, "raw/node-ids", "raw/node-names"));
  PF_ASSIGN_OR_RETURN(files.split, FindSplit(source, options.split, /*or_masks=*/true, files.links.has_value()));
  return files;
}

// Returns true if the directory has raw/edge.csv. A directory that also has raw/graph-label.csv is a set of graphs,
// so kAuto tests for sets first.
absl::StatusOr<bool> IsOgbNodes(const fs::path& directory) {
  return HoldsAny(directory, {"raw/edge.csv", "raw/edge.csv.gz", "raw/edge.csv.zst"});
}

}  // namespace

Importer OgbNodesImporter() {
  return {.format = ImportFormat::kOgbNodes,
          .known_by = "raw/edge.csv[.gz|.zst]",
          .detect = &IsOgbNodes,
          .find = &FindAs<FindOgbNodeFiles, FoundFiles<OgbNodeFiles, OgbNodesImport>>};
}

}  // namespace permafrost::data
