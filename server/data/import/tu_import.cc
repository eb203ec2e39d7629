#include "data/import/import.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/import/feature_rows.h"
#include "data/import/graph_edges.h"
#include "data/import/graph_set_builder.h"
#include "data/import/split_files.h"
#include "data/import/tu_files.h"
#include "data/source/csv_rows.h"

namespace permafrost::data {
namespace {

namespace fs = std::filesystem;

// Labels with more distinct whole numbers than this are values, not classes.
constexpr size_t kMostClasses = 4096;
// Bytes for each label of a graph, including the unused capacity of a growing vector.
constexpr uint64_t kBytesPerLabel = 12;
// Bytes per edge of one graph for recognising repeated edges.
constexpr uint64_t kBytesPerSeenEdge = 40;
// Bytes per node of one graph for its degree.
constexpr uint64_t kBytesPerDegree = sizeof(int64_t);

ImportOptions AsTheyStand(ImportOptions options) {
  options.inverse_edges = InverseEdges::kKeep;
  return options;
}

class TuImport {
 public:
  TuImport(const ImportOptions& options, const TuFiles& files, const fs::path& directory, ImportMonitor& monitor)
      : options_(AsTheyStand(options)),
        files_(files),
        monitor_(monitor),
        builder_(options_, directory, monitor),
        directory_(directory),
        edges_(files.edges, builder_, directory, ImportMemory(options_, monitor.limits()), monitor) {}

  absl::StatusOr<GraphSetSummary> Run() {
    PF_RETURN_IF_ERROR(ReadGraphLabels());
    PF_RETURN_IF_ERROR(ReadSizes());
    PF_RETURN_IF_ERROR(builder_.SetSplit(builder_.summary().class_values.empty()
                                             ? std::nullopt
                                             : std::optional(DrawStratifiedSplit(options_, labels_))));
    std::vector<float>().swap(labels_);
    PF_RETURN_IF_ERROR(ReadNodeFeatures());
    PF_RETURN_IF_ERROR(ReadEdges());
    return builder_.Finish();
  }

 private:
  static constexpr std::string_view kOneANode = "one a node, as the rows of NAME_graph_indicator.txt";

  // Reads all labels, renumbers them if they are classes, and writes them.
  absl::Status ReadGraphLabels() {
    const auto& file = files_.graph_attributes ? files_.graph_attributes : files_.graph_labels;
    if (!file) return builder_.FinishLabels();
    PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(*file, monitor_));
    std::vector<float> row;
    std::string_view line;
    size_t width = 0;
    for (;;) {
      PF_ASSIGN_OR_RETURN(const bool more, rows.Next(line));
      if (!more) break;
      PF_RETURN_IF_ERROR(ParseLabels(rows, line, row));
      if (num_graphs_++ == 0) width = row.size();
      if (row.size() != width) {
        return rows.WidthError(static_cast<int64_t>(row.size()), static_cast<int64_t>(width), "as the rows before");
      }
      PF_RETURN_IF_ERROR(builder_.CheckMemory(rows, labels_.size() + width, "labels", kBytesPerLabel));
      labels_.insert(labels_.end(), row.begin(), row.end());
    }
    if (files_.graph_labels && width == 1) Renumber();
    for (size_t first = 0; first < labels_.size(); first += width) {
      PF_RETURN_IF_ERROR(builder_.AddLabels(rows, std::span(labels_).subspan(first, width)));
    }
    return builder_.FinishLabels();
  }

  // If all labels are whole numbers, renumbers them as 0, 1, ... in rising order. Otherwise leaves them as they are.
  void Renumber() {
    absl::flat_hash_set<int64_t> seen;
    for (const float label : labels_) {
      if (std::isnan(label)) continue;
      constexpr float kExact = 1 << 24;
      if (std::floor(label) != label || std::abs(label) > kExact) return;
      seen.insert(static_cast<int64_t>(label));
      if (seen.size() > kMostClasses) return;
    }
    std::vector<int64_t> values(seen.begin(), seen.end());
    std::ranges::sort(values);
    for (float& label : labels_) {
      if (std::isnan(label)) continue;
      label = static_cast<float>(std::ranges::lower_bound(values, static_cast<int64_t>(label)) - values.begin());
    }
    builder_.summary().class_values = std::move(values);
  }

  static absl::StatusOr<int64_t> ParseId(const CsvRows& rows, std::string_view field, std::string_view cell) {
    int64_t value = 0;
    const IntegerCell parsed = ParseInteger(cell, value);
    if (parsed == IntegerCell::kOk) return value;
    return rows.Error(field, absl::StrCat(Quote(cell), parsed == IntegerCell::kOutOfRange ? " is outside 64 bits"
                                                                                          : " is not an integer"));
  }

  absl::Status ReadSizes() {
    PF_RETURN_IF_ERROR(CountNodes());
    for (bool done = false; !done;) {
      PF_ASSIGN_OR_RETURN(done, CountEdges());
    }
    return builder_.FinishSizes(/*inverses=*/false);
  }

  // Counts the nodes of each graph. The nodes of a graph must be consecutive, and graphs must come in order.
  absl::Status CountNodes() {
    PF_ASSIGN_OR_RETURN(CsvRows rows, CsvRows::Open(files_.graph_of_node, monitor_));
    const bool labelled = files_.graph_labels || files_.graph_attributes;
    int64_t first_graph = 1, graph = 0, nodes = 0;
    bool any = false;
    std::string_view line;
    for (;;) {
      PF_ASSIGN_OR_RETURN(const bool more, rows.Next(line));
      if (!more) break;
      if (const int64_t cells = CountCells(line); cells != 1) return rows.WidthError(cells, 1, "the graph of a node");
      Cells cells(line);
      std::string_view cell;
      cells.Next(cell);
      PF_ASSIGN_OR_RETURN(int64_t of, ParseId(rows, "graph", cell));
      if (!std::exchange(any, true) && of == 0) first_graph = 0;
      const int64_t last_graph = first_graph + (labelled ? num_graphs_ : GraphSetBuilder::kMaxGraphSize) - 1;
      if (of < first_graph || of > last_graph) {
        return rows.Error("graph", absl::StrCat(of, " is outside ", first_graph, "..", last_graph,
                                                labelled ? " (a graph for each graph label)" : ""));
      }
      of -= first_graph;
      if (of < graph) {
        return rows.Error("graph", absl::StrCat(of + first_graph, " stands after ", graph + first_graph,
                                                "; graphs are accepted in rising order"));
      }
      for (; graph < of; ++graph, nodes = 0) PF_RETURN_IF_ERROR(builder_.AddNodeCount(rows, nodes));
      if (++nodes > GraphSetBuilder::kMaxGraphSize) {
        return rows.Error("graph",
                          absl::StrCat(of + first_graph, " has more than ", GraphSetBuilder::kMaxGraphSize, " nodes"));
      }
      if (files_.degrees) {
        PF_RETURN_IF_ERROR(
            builder_.CheckMemory(rows, static_cast<uint64_t>(nodes), "nodes of one graph", kBytesPerDegree));
      }
    }
    if (any) PF_RETURN_IF_ERROR(builder_.AddNodeCount(rows, nodes));
    // The last graphs may have no nodes.
    while (builder_.num_graphs() < num_graphs_) PF_RETURN_IF_ERROR(builder_.AddNodeCount(rows, 0));
    num_graphs_ = builder_.num_graphs();
    return absl::OkStatus();
  }

  // Counts the edges of each graph. Returns false if they must be counted again.
  absl::StatusOr<bool> CountEdges() {
    PF_RETURN_IF_ERROR(edges_.Begin());
    std::vector<int64_t> counts;  // numbers of edges of the graphs before the current one
    absl::flat_hash_set<uint64_t> seen;
    std::vector<int64_t> degrees;  // of the nodes of the current graph, if degrees are features
    int64_t edges = 0, duplicates = 0, counted = 0;
    largest_degree_ = 0;
    const auto finish = [&](int64_t until) {
      if (counted == until) return;
      for (; counted < until; ++counted, edges = 0) counts.push_back(edges);
      seen.clear();
      degrees.clear();
    };
    TuEdges::Edge edge;
    for (;;) {
      PF_ASSIGN_OR_RETURN(const TuEdges::Next next, edges_.Read(edge));
      if (next == TuEdges::Next::kAnew) return false;
      if (next == TuEdges::Next::kEnd) break;
      finish(edge.graph);
      const bool first = seen.insert(uint64_t{edge.source} << 32 | edge.target).second;
      if (!first) ++duplicates;
      PF_RETURN_IF_ERROR(
          builder_.CheckMemory(edges_.file_rows(), seen.size(), "different edges of one graph", kBytesPerSeenEdge));
      if (!first && options_.coalesce) continue;
      if (files_.degrees) {
        if (degrees.empty()) degrees.resize(static_cast<size_t>(builder_.NodesOf(edge.graph)));
        largest_degree_ = std::max(largest_degree_, ++degrees[edge.source]);
      }
      if (++edges > GraphSetBuilder::kMaxGraphSize) {
        return edges_.file_rows().Error(
            absl::StrCat("graph ", edge.graph + 1, " has more than ", GraphSetBuilder::kMaxGraphSize, " edges"));
      }
    }
    finish(num_graphs_);
    PF_RETURN_IF_ERROR(CheckNumberedThroughout(counts, duplicates));
    for (const int64_t count : counts) PF_RETURN_IF_ERROR(builder_.AddEdgeCount(edges_.file_rows(), count));
    builder_.summary().duplicate_edges = duplicates;
    return true;
  }

  // Refuses a list whose node ids seem to start again in each graph. In a TUDataset, ids continue through all graphs.
  // If such a list were read with continuing ids, all edges would fall into the first graphs. It is recognised by
  // three signs together:
  // - No id exceeds the size of the largest graph.
  // - Graphs without edges exist, and all graphs with edges come before them. Graphs of fewer than two nodes do not
  //   count.
  // - An edge repeats, or edges go back to a smaller source at least once for each counted graph after the first.
  absl::Status CheckNumberedThroughout(const std::vector<int64_t>& edges_of_graph, int64_t duplicates) const {
    int64_t largest = 0, with_edges = 0, without = 0;
    for (int64_t g = 0; g < num_graphs_; ++g) {
      const int64_t nodes = builder_.NodesOf(g);
      largest = std::max(largest, nodes);
      if (nodes < 2) continue;
      // The second sign is missing if a graph with edges follows a graph without edges.
      const bool has_edges = edges_of_graph[static_cast<size_t>(g)] > 0;
      if (has_edges && without > 0) return absl::OkStatus();
      ++(has_edges ? with_edges : without);
    }
    const bool begins_anew = duplicates > 0 || edges_.descents() >= with_edges + without - 1;
    if (with_edges == 0 || without == 0 || edges_.largest_node() > largest || !begins_anew) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(files_.edges.name, ": node ids: all edges are among the first ", edges_.largest_node(),
                     " nodes of the set, and the largest of its ", num_graphs_, " graphs has ", largest, "; ",
                     duplicates, " edges are repeated, and ", without,
                     " graphs of two or more nodes would have none: ids seem to begin anew in "
                     "each graph; accepted: ids that go on through all graphs, as the rows of ",
                     files_.graph_of_node.name));
  }

  absl::Status ReadNodeFeatures() {
    PF_ASSIGN_OR_RETURN(TuFeatures features, TuFeatures::Open(files_.node, options_.tu.one_hot, builder_.num_nodes(),
                                                              std::string(kOneANode), monitor_));
    if (!features.any()) return absl::OkStatus();
    builder_.BeginNodeFeatures();
    for (int64_t n = 0; n < builder_.num_nodes(); ++n) {
      PF_RETURN_IF_ERROR(features.Next());
      PF_RETURN_IF_ERROR(builder_.AddNodeFeatures(features.summary(), features.row()));
    }
    PF_RETURN_IF_ERROR(features.ExpectEnd());
    if (builder_.num_nodes() == 0) return absl::OkStatus();
    builder_.SetNodeFeatures(features.summary(), features.categories());
    builder_.summary().node_feature_origin = features.origin();
    return absl::OkStatus();
  }

  // Reads edges and their features. Counts degrees if they are node features.
  absl::Status ReadEdges() {
    PF_RETURN_IF_ERROR(edges_.Begin());
    const std::string why = absl::StrCat("one an edge, as the rows of ", files_.edges.name);
    PF_ASSIGN_OR_RETURN(TuFeatures features,
                        TuFeatures::Open(files_.edge, options_.tu.one_hot, edges_.rows(), why, monitor_));
    TuRows feature_rows(features, directory_, monitor_);
    if (features.any() && edges_.sorted()) PF_RETURN_IF_ERROR(feature_rows.Keep(edges_.rows()));
    PF_RETURN_IF_ERROR(builder_.BeginEdges());
    builder_.BeginNodeFeatures();
    absl::flat_hash_set<uint64_t> seen;
    int64_t begun = -1;
    // Finishes the graphs before `until`, then begins graph `until`.
    const auto begin = [&](int64_t until) -> absl::Status {
      while (begun < until) {
        if (begun >= 0) PF_RETURN_IF_ERROR(FinishGraph(begun));
        if (++begun == num_graphs_) break;
        builder_.BeginGraphEdges(begun);
        seen.clear();
      }
      return absl::OkStatus();
    };
    TuEdges::Edge edge;
    for (;;) {
      PF_ASSIGN_OR_RETURN(const TuEdges::Next next, edges_.Read(edge));
      if (next == TuEdges::Next::kEnd) break;
      PF_RETURN_IF_ERROR(begin(edge.graph));
      if (features.any()) PF_RETURN_IF_ERROR(feature_rows.Read(edge.row));
      if (options_.coalesce && !seen.insert(uint64_t{edge.source} << 32 | edge.target).second) continue;
      builder_.edges().Add(edge.source, edge.target);
      if (features.any()) {
        PF_RETURN_IF_ERROR(builder_.AddEdgeFeatures(features.rows(), features.summary(), feature_rows.row()));
      }
    }
    PF_RETURN_IF_ERROR(begin(num_graphs_));
    PF_RETURN_IF_ERROR(FinishDegrees());
    if (!features.any()) return absl::OkStatus();
    PF_RETURN_IF_ERROR(features.ExpectEnd());
    builder_.SetEdgeFeatures(features.summary(),
                             edges_.rows() > 0 ? features.categories() : std::vector<CategoryTable>());
    if (edges_.rows() > 0) builder_.summary().edge_feature_origin = features.origin();
    return absl::OkStatus();
  }

  absl::Status Changed() const {
    return absl::InvalidArgumentError(absl::StrCat(files_.edges.name, ": changed while it was read"));
  }

  absl::Status FinishGraph(int64_t graph) {
    if (static_cast<int64_t>(builder_.edges().count()) != builder_.SourceEdgesOf(graph)) return Changed();
    PF_RETURN_IF_ERROR(builder_.FinishGraphEdges());
    return files_.degrees ? AddDegrees(graph) : absl::OkStatus();
  }

  // Adds the out-degree of each node of `graph`, the graph finished last, as a feature.
  absl::Status AddDegrees(int64_t graph) {
    const int64_t most = options_.tu.max_degree;
    std::vector<int64_t> degrees(static_cast<size_t>(builder_.NodesOf(graph)));
    for (const uint32_t source : builder_.edges().source()) ++degrees[source];
    const bool one_hot = options_.tu.one_hot;
    // No column is needed beyond the largest degree that occurs.
    const int64_t columns = one_hot ? std::min(most, largest_degree_) + 1 : 1;
    if (degree_features_.width == 0) {
      degree_features_ = {
          .type = one_hot ? DataType::kFloat32 : DataType::kInt32, .width = columns, .min = {}, .max = {}};
      nodes_of_degree_.resize(static_cast<size_t>(columns));
      degree_features_.min.assign(static_cast<size_t>(degree_features_.width), one_hot ? 1 : static_cast<double>(most));
      degree_features_.max.assign(static_cast<size_t>(degree_features_.width), 0);
    }
    std::vector<float> row(static_cast<size_t>(columns));
    for (const int64_t degree : degrees) {
      // The first reading found no degree above largest_degree_, so the file has changed since.
      if (degree > largest_degree_) return Changed();
      capped_ += degree > most;
      const auto value = static_cast<int32_t>(std::min(degree, most));
      degrees_.Add(0, value);
      if (one_hot) {
        row[static_cast<size_t>(value)] = 1;
        ++nodes_of_degree_[static_cast<size_t>(value)];
        PF_RETURN_IF_ERROR(builder_.AddNodeFeatures(degree_features_, std::as_bytes(std::span(row))));
        row[static_cast<size_t>(value)] = 0;
        continue;
      }
      degree_features_.min[0] = std::min<double>(degree_features_.min[0], value);
      degree_features_.max[0] = std::max<double>(degree_features_.max[0], value);
      PF_RETURN_IF_ERROR(builder_.AddNodeFeatures(degree_features_, std::as_bytes(std::span(&value, 1))));
    }
    return absl::OkStatus();
  }

  absl::Status FinishDegrees() {
    if (!files_.degrees || builder_.num_nodes() == 0) return absl::OkStatus();
    if (options_.tu.one_hot) {
      for (size_t c = 0; c < nodes_of_degree_.size(); ++c) {
        degree_features_.min[c] = nodes_of_degree_[c] == builder_.num_nodes() ? 1 : 0;
        degree_features_.max[c] = nodes_of_degree_[c] > 0 ? 1 : 0;
      }
    }
    CategoryTable table{.origin = CategoryOrigin::kDegree,
                        .columns = options_.tu.one_hot ? degree_features_.width : 0,
                        .open_ended = capped_ > 0};
    degrees_.Take(0, table);
    builder_.SetNodeFeatures(degree_features_, {std::move(table)});
    builder_.summary().node_feature_origin =
        absl::StrCat(options_.tu.one_hot ? "one-hot " : "", "degrees, at most ", options_.tu.max_degree, " (", capped_,
                     capped_ == 1 ? " node has more)" : " nodes have more)");
    return absl::OkStatus();
  }

  const ImportOptions options_;
  const TuFiles& files_;
  ImportMonitor& monitor_;
  GraphSetBuilder builder_;
  const fs::path directory_;
  TuEdges edges_;
  int64_t num_graphs_ = 0;
  std::vector<float> labels_;
  FeatureSummary degree_features_;
  std::vector<int64_t> nodes_of_degree_;
  ValueSets degrees_;
  int64_t largest_degree_ = 0, capped_ = 0;
};

class FoundTu final : public FoundSource {
 public:
  FoundTu(const ImportOptions& options, TuFiles files) : options_(options), files_(std::move(files)) {}
  int64_t bytes() const override { return files_.bytes(); }
  SourceContents contents() const override { return files_.contents(options_.source); }
  absl::StatusOr<ImportedSummary> Run(const fs::path& directory, ImportMonitor& monitor) override {
    return TuImport(options_, files_, directory, monitor).Run();
  }

 private:
  const ImportOptions& options_;
  const TuFiles files_;
};

absl::StatusOr<std::unique_ptr<FoundSource>> FindTu(const ImportOptions& options, const ImportLimits& limits) {
  PF_ASSIGN_OR_RETURN(TuFiles files, FindTuFiles(options, limits));
  return std::make_unique<FoundTu>(options, std::move(files));
}

}  // namespace

Importer TuImporter() {
  return {.format = ImportFormat::kTu,
          .known_by = "NAME_graph_indicator.txt",
          .detect = &IsTuDirectory,
          .detect_file = &IsZipName,
          .find = &FindTu};
}

}  // namespace permafrost::data
