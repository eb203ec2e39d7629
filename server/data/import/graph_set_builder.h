// Builds the store of a set of small graphs, whatever the source's format. The importer parses rows. This class
// checks sizes and memory, sorts the edges, and writes the sections.
// Steps, in this order: sizes and inverses, split, labels, node features and positions (if any), edges, Finish.
// Threads: one at a time. Memory: the offsets and the largest graph, bounded by the import's limits. Borrows options
// and monitor.
// Errors: InvalidArgument and ResourceExhausted, whose messages begin with the row read last, "FILE:ROW: ...";
// Internal if writing fails; Cancelled. After any error the caller removes the directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/feature_rows.h"
#include "data/import/split_files.h"
#include "data/source/csv_rows.h"
#include "data/source/import_options.h"
#include "data/store/graph_set.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

// The edges of one graph as the store keeps them: sorted by target. Edges with the same target stay in file order.
// Threads: one at a time. Memory: the largest graph.
class EdgesOfGraph {
 public:
  // Sets whether inverses are added. This takes effect with the next graph. With inverses, the file order is e0,
  // inverse(e0), e1, inverse(e1), ..., as in OGB's reader. A self-loop gets an inverse too, so it is stored twice.
  void SetAddInverses(bool add_inverses) { add_inverses_ = add_inverses; }
  // Drops all edges, and begins graph `graph`, which has `num_nodes` nodes.
  void BeginGraph(int64_t graph, int64_t num_nodes);
  // Adds the edge of a line "source,target". Errors: InvalidArgument unless the line holds two node ids of the graph.
  absl::Status Parse(const CsvRows& rows, std::string_view line);
  // Adds an edge. `source` and `target` are nodes of the graph, counted from 0.
  void Add(uint32_t source, uint32_t target);
  // Returns the number of edges added so far, inverses included.
  size_t count() const { return file_target_.size(); }
  // Call it after the graph's last edge. Returns how many edges repeat an earlier edge.
  size_t CountEqual();
  // Call it after the graph's last edge. Returns true if every (u, v) occurs as often as (v, u).
  bool HasBothDirections();
  // Call it after the graph's last edge. Fills source(), target() and file_row().
  void Sort();

  std::span<const uint32_t> source() const { return source_; }
  std::span<const uint32_t> target() const { return target_; }
  // Returns, for each stored edge, the row of the source file that the edge came from. Rows count from 0 within the
  // graph.
  std::span<const uint32_t> file_row() const { return file_row_; }

 private:
  absl::Status ParseEnd(const CsvRows& rows, std::string_view field, std::string_view cell, uint32_t& end) const;

  // Sets keys_ to the (target, source) key of every edge, sorted.
  void SortEnds();

  bool add_inverses_ = false;
  int64_t graph_ = 0, num_nodes_ = 0;
  std::vector<uint32_t> file_source_, file_target_;  // in file order
  std::vector<uint64_t> keys_, inverses_;
  std::vector<uint32_t> source_, target_, file_row_;
};

class GraphSetBuilder {
 public:
  // The most nodes of one graph, and the most edges of one graph before inverses are added. Within this limit, edge
  // indices within a graph fit 32 bits even with inverses.
  static constexpr int64_t kMaxGraphSize = std::numeric_limits<int32_t>::max();

  GraphSetBuilder(const ImportOptions& options, const std::filesystem::path& directory, ImportMonitor& monitor);

  // Sizes: first add the number of nodes of every graph. Then add, for the graphs in the same order, the number of
  // edges that the source lists, without inverses. Each number is in 0..kMaxGraphSize.
  absl::Status AddNodeCount(const CsvRows& rows, int64_t nodes);
  absl::Status AddEdgeCount(const CsvRows& rows, int64_t edges);
  // Call it after the last edge count. `inverses` says whether each edge is stored with its inverse.
  absl::Status FinishSizes(bool inverses);
  int64_t num_graphs() const { return static_cast<int64_t>(node_offsets_.size()) - 1; }
  int64_t num_nodes() const { return static_cast<int64_t>(node_offsets_.back()); }
  int64_t num_source_edges() const { return static_cast<int64_t>(edge_offsets_.back()) / edge_factor_; }
  int64_t NodesOf(int64_t graph) const { return SizeAt(node_offsets_, graph); }
  int64_t FirstNodeOf(int64_t graph) const { return static_cast<int64_t>(node_offsets_[static_cast<size_t>(graph)]); }
  // Returns the graph that holds node `node`. Nodes are counted over all graphs. Looks at graph `guess` first.
  int64_t GraphOf(int64_t node, int64_t guess) const;
  int64_t SourceEdgesOf(int64_t graph) const { return SizeAt(edge_offsets_, graph) / edge_factor_; }

  // Sets the split that the source provides. With nullopt, draws a split as the options say.
  absl::Status SetSplit(std::optional<SplitGraphs> split);

  // Labels: each call adds the labels of the next graph, with NaN for a missing label. All graphs have the same
  // number of labels.
  absl::Status AddLabels(const CsvRows& rows, std::span<const float> labels);
  absl::Status FinishLabels();

  // Node features: one row per node. Each call adds the row that `features` parsed last. If the table turns out to be
  // of another type, call BeginNodeFeatures and add all rows again.
  void BeginNodeFeatures() { node_features_begun_ = false; }
  absl::Status AddNodeFeatures(const FeatureRows& features) {
    return AddNodeFeatures(features.summary(), features.row());
  }
  absl::Status AddNodeFeatures(const FeatureSummary& features, std::span<const std::byte> row);
  absl::Status FinishNodeFeatures(const FeatureRows& features);
  void SetNodeFeatures(FeatureSummary features, std::vector<CategoryTable> tables) {
    summary_.node_features = std::move(features);
    writer_.categories().node.tables = std::move(tables);
  }

  // Adds the position of one node. All rows have the same number of floats. Errors: InvalidArgument for more than
  // kMaxPositionColumns.
  absl::Status AddPosition(const CsvRows& rows, std::span<const std::byte> row);

  // Edges: for each graph, call BeginGraphEdges, add the edges to edges(), and call FinishGraphEdges. If edges have
  // features, call AddEdgeFeatures after each edge; it adds the row that `features` parsed last.
  // If the features turn out to be of another type, call BeginEdges and add all edges again.
  absl::Status BeginEdges();
  void BeginGraphEdges(int64_t graph) { edges_.BeginGraph(graph, NodesOf(graph)), edge_features_.clear(); }
  EdgesOfGraph& edges() { return edges_; }
  absl::Status AddEdgeFeatures(const CsvRows& rows, const FeatureRows& features) {
    return AddEdgeFeatures(rows, features.summary(), features.row());
  }
  absl::Status AddEdgeFeatures(const CsvRows& rows, const FeatureSummary& features, std::span<const std::byte> row);
  absl::Status FinishGraphEdges();
  absl::Status FinishEdges(const FeatureRows& features);
  void SetEdgeFeatures(FeatureSummary features, std::vector<CategoryTable> tables) {
    summary_.edge_features = std::move(features);
    writer_.categories().edge.tables = std::move(tables);
  }

  // Before Finish, the importer sets the fields that only it knows: class_values, duplicate_edges, and the fields
  // whose names end in _origin.
  GraphSetSummary& summary() { return summary_; }
  // Checks that `count` items of `bytes_each` bytes fit in the memory that an import may use. Errors:
  // ResourceExhausted, whose message calls the items `things`.
  absl::Status CheckMemory(const CsvRows& rows, uint64_t count, std::string_view things, uint64_t bytes_each) const;

  // Joins the sections into the store and syncs it.
  absl::StatusOr<GraphSetSummary> Finish();

 private:
  static int64_t SizeAt(const std::vector<uint64_t>& offsets, int64_t graph) {
    const auto g = static_cast<size_t>(graph);
    return static_cast<int64_t>(offsets[g + 1] - offsets[g]);
  }
  absl::Status BeginFeatures(SectionKind kind, const FeatureSummary& features);

  const ImportOptions& options_;
  ImportMonitor& monitor_;
  GraphSetWriter writer_;
  std::vector<uint64_t> node_offsets_ = {0}, edge_offsets_ = {0};
  int64_t edge_factor_ = 1;  // stored edges per edge of the source; 1 until FinishSizes
  int64_t equal_edges_ = 0;
  bool both_directions_ = true;  // true if every finished graph is stored with both directions
  EdgesOfGraph edges_;
  std::vector<std::byte> edge_features_;  // feature rows of one graph's edges, in the source's order
  size_t edge_feature_bytes_ = 0;         // bytes of one row; 0 before the first row
  bool node_features_begun_ = false, any_label_ = false;
  ValueSets classes_;
  GraphSetSummary summary_;
};

}  // namespace permafrost::data
