// Builds the store of a set of small graphs from what an importer reads of a source, whatever its format: the importer
// parses rows, this class checks sizes and memory, brings edges into their order, and writes the sections.
// Steps, in this order: sizes, inverses, split, labels, node features and positions (if any), edges, Finish.
// Threads: one at a time. Memory: the offsets and the largest graph, bounded by the import's limits. Borrows options
// and monitor. Errors: InvalidArgument and ResourceExhausted name the row read last, "FILE:ROW: ..."; Internal from
// writing; Cancelled. After any error the caller removes the directory.
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

// The edges of one graph as the store keeps them: sorted by target, ties in file order.
// Threads: one at a time. Memory: the largest graph.
class EdgesOfGraph {
 public:
  // Takes effect from the next graph on. With inverses, file order is e0, inverse(e0), e1, inverse(e1), ... as OGB's
  // reader makes it; self-loops too.
  void SetAddInverses(bool add_inverses) { add_inverses_ = add_inverses; }
  // Forgets the edges; those that follow are of graph `graph` with `num_nodes` nodes.
  void BeginGraph(int64_t graph, int64_t num_nodes);
  // Takes in "source,target". InvalidArgument for what is no two node ids of the graph.
  absl::Status Parse(const CsvRows& rows, std::string_view line);
  // source, target: nodes of the graph, from 0.
  void Add(uint32_t source, uint32_t target);
  // Edges taken in, with inverses.
  size_t count() const { return file_target_.size(); }
  // After the graph's last edge: edges beyond the first with equal ends; and whether every (u, v) stands as often as
  // (v, u).
  size_t CountEqual();
  bool HasBothDirections();
  // After the graph's last edge.
  void Sort();

  std::span<const uint32_t> source() const { return source_; }
  std::span<const uint32_t> target() const { return target_; }
  // For each stored edge: which of the graph's rows, from 0, it came from.
  std::span<const uint32_t> file_row() const { return file_row_; }

 private:
  absl::Status ParseEnd(const CsvRows& rows, std::string_view field, std::string_view cell, uint32_t& end) const;

  // Sets keys_ to the edges by target and source, sorted.
  void SortEnds();

  bool add_inverses_ = false;
  int64_t graph_ = 0, num_nodes_ = 0;
  std::vector<uint32_t> file_source_, file_target_;  // file order
  std::vector<uint64_t> keys_, inverses_;
  std::vector<uint32_t> source_, target_, file_row_;
};

class GraphSetBuilder {
 public:
  // Most nodes of a graph, and most edges before inverses are added, so that an edge's index within its graph fits 32
  // bits.
  static constexpr int64_t kMaxGraphSize = std::numeric_limits<int32_t>::max();

  GraphSetBuilder(const ImportOptions& options, const std::filesystem::path& directory, ImportMonitor& monitor);

  // Sizes: the nodes of every graph, then the edges of every graph in the same order as the source has them, without
  // inverses. 0..kMaxGraphSize each.
  absl::Status AddNodeCount(const CsvRows& rows, int64_t nodes);
  absl::Status AddEdgeCount(const CsvRows& rows, int64_t edges);
  // Once the number of edges is known. inverses: whether each edge is stored with its inverse.
  absl::Status FinishSizes(bool inverses);
  int64_t num_graphs() const { return static_cast<int64_t>(node_offsets_.size()) - 1; }
  int64_t num_nodes() const { return static_cast<int64_t>(node_offsets_.back()); }
  int64_t num_source_edges() const { return static_cast<int64_t>(edge_offsets_.back()) / edge_factor_; }
  int64_t NodesOf(int64_t graph) const { return SizeAt(node_offsets_, graph); }
  int64_t FirstNodeOf(int64_t graph) const { return static_cast<int64_t>(node_offsets_[static_cast<size_t>(graph)]); }
  // Returns the graph of a node of the set, counted over all graphs; looks at graph `guess` first.
  int64_t GraphOf(int64_t node, int64_t guess) const;
  int64_t SourceEdgesOf(int64_t graph) const { return SizeAt(edge_offsets_, graph) / edge_factor_; }

  // Split: the source's own; nullopt: drawn as the options say.
  absl::Status SetSplit(std::optional<SplitGraphs> split);

  // Labels: a row a graph, NaN where one is missing; equally many in each.
  absl::Status AddLabels(const CsvRows& rows, std::span<const float> labels);
  absl::Status FinishLabels();

  // Node features: the row that `features` parsed last, one a node. Begun anew when the table turns out to be of
  // another type.
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

  // Adds one node's position; every row has as many floats as the first. InvalidArgument for more than
  // kMaxPositionColumns.
  absl::Status AddPosition(const CsvRows& rows, std::span<const std::byte> row);

  // Edges, graph by graph, each with the row that `features` parsed last where edges have features. Begun anew as node
  // features are.
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

  // The fields that a source's format says beyond that, to be set before Finish: class_values, ..._origin,
  // duplicate_edges.
  GraphSetSummary& summary() { return summary_; }
  // Ok if `count` things of `bytes_each` fit the memory that an import may take.
  absl::Status CheckMemory(const CsvRows& rows, uint64_t count, std::string_view things, uint64_t bytes_each) const;

  // Joins the sections into the store, synced.
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
  int64_t edge_factor_ = 1;  // stored edges for each of the source; 1 until the sizes are finished
  int64_t equal_edges_ = 0;
  bool both_directions_ = true;  // of the graphs finished so far, as stored
  EdgesOfGraph edges_;
  std::vector<std::byte> edge_features_;  // of one graph, in the source's order
  size_t edge_feature_bytes_ = 0;         // of a row; 0: there was none
  bool node_features_begun_ = false, any_label_ = false;
  ValueSets classes_;
  GraphSetSummary summary_;
};

}  // namespace permafrost::data
