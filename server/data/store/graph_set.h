// A set of many small graphs in a store: memory-mapped, columnar, checked.
// Words: "edges" are directed edges as stored (with inverses, if the import added them).
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/categories.h"
#include "data/store/types.h"

namespace permafrost::data {

// A row-major table of features with one row for each node or edge. kNone has width 0.
struct FeatureTable {
  DataType type = DataType::kNone;
  int64_t width = 0;
  std::span<const int32_t> ints;  // rows * width values for kInt32, else empty
  std::span<const float> floats;  // rows * width values for kFloat32, else empty
};

struct GraphSetSummary {
  SizeStatistics all;
  std::array<SizeStatistics, 3> splits;  // by Split
  FeatureSummary node_features, edge_features;
  int64_t position_columns = 0;  // 0 if the nodes have no positions
  int64_t num_targets = 0;
  int64_t num_missing_labels = 0;
  // integer_labels, min_label and max_label describe all labels that are present. They mean nothing if labels_known
  // is false: the older version that imported the set did not look at the labels.
  bool labels_known = false, integer_labels = false;
  double min_label = 0, max_label = 0;
  // If the import renumbered the classes: class_values[c] is the source's value for class c, rising. Otherwise empty.
  std::vector<int64_t> class_values;
  // The origin of features that the import made, such as "labels" or "degree". Empty if the import took over a table
  // of the source.
  std::string node_feature_origin, edge_feature_origin;
  // The number of stored edges with the same two ends as an earlier edge. If the import was asked to `coalesce`
  // edges, this is the number of these edges that it dropped. Older versions counted them for TUDatasets only.
  int64_t duplicate_edges = 0;
  // Lines that the import told its user: how it read ambiguous input, and which files it did not read. Each is one
  // line of UTF-8.
  std::vector<std::string> notes;
  // True if the import kept the tables of categories (GraphSet::categories). Older versions did not.
  bool categories_known = false;
  uint64_t store_bytes = 0;
  std::string split_name;  // "random" for a split drawn by a seed
  bool inverse_edges_added = false;
  EdgeDirections directions = EdgeDirections::kUnknown;
};

// An open store. Opening it reads only the header, the section table, the block checksums, the gaps and the summary.
// It copies no section. A section's blocks are verified the first time that someone asks for the section.
// Threads: all methods are safe anywhere.
// Invariant: once a method has returned a section, the section's offsets rise and its ids are in range. An end of an
// edge is below the number of nodes of its graph. Owns the mapping; spans live as long as the GraphSet.
class GraphSet {
 public:
  // The name of the file in a dataset's directory.
  static constexpr std::string_view kFileName = "graphs.pfg";

  // `directory` is datasets/NAME. Errors: NotFound; DataLoss, naming the inconsistent field (magic, counts, lengths,
  // header checksum); FailedPrecondition for a later version or the other byte order; those of SystemError.
  static absl::StatusOr<std::shared_ptr<const GraphSet>> Open(const std::filesystem::path& directory);
  virtual ~GraphSet() = default;

  // The import computed the summary once and stored it.
  virtual const GraphSetSummary& summary() const = 0;
  // Returns the checksum of the header and the table of sections. It covers everything in the file, since the table
  // holds the sections' checksums: sets with equal checksums are equal.
  virtual uint64_t checksum() const = 0;
  // Returns a checksum that does not cover the summary, or 0 if the set is in no file.
  virtual uint64_t content_checksum() const { return 0; }

  // Errors of all methods from here to split(): DataLoss if the section's checksum or content is wrong. The message
  // names the file and the section.
  // The next two methods return [graphs + 1] offsets: the first node of each graph, and the first edge of each graph.
  virtual absl::StatusOr<std::span<const uint64_t>> node_offsets() const = 0;
  virtual absl::StatusOr<std::span<const uint64_t>> edge_offsets() const = 0;
  // The next two methods return [edges] node ids, counted from 0 within the edge's graph. The edges of a graph are
  // sorted by target, then in the order of the source file.
  virtual absl::StatusOr<std::span<const uint32_t>> edge_source() const = 0;
  virtual absl::StatusOr<std::span<const uint32_t>> edge_target() const = 0;
  virtual absl::StatusOr<FeatureTable> node_features() const = 0;
  virtual absl::StatusOr<FeatureTable> edge_features() const = 0;
  // Returns one float32 row for each node, or a table of kNone if the set has no positions.
  virtual absl::StatusOr<FeatureTable> positions() const { return FeatureTable(); }
  // Returns the labels, [graphs, num_targets], NaN where a label is missing. The span is empty if all are missing.
  virtual absl::StatusOr<std::span<const float>> labels() const = 0;
  // Returns the tables of the set's categories. Returns nullopt if an older version imported the set, without these
  // tables.
  virtual absl::StatusOr<std::optional<Categories>> categories() const { return std::optional<Categories>(); }
  // Returns the graph ids of a split, in the order of the file.
  virtual absl::StatusOr<std::span<const uint32_t>> split(Split split) const = 0;
  // Returns DataLoss, naming the file, if the file was cut short or written to after Open. Returns a transient error
  // if the disk failed to deliver a part of the file; opening the file again may help. After either error, values
  // that were read from spans before may be wrong, be zeros or break the invariant. Trust them only if a CheckIntact
  // after the reading returns Ok.
  virtual absl::Status CheckIntact() const = 0;
  // Verifies every section of the file. Calls `progress` now and then with the bytes done and the bytes in total. If
  // `progress` returns false, VerifyAll returns Cancelled.
  virtual absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const = 0;
  virtual uint64_t mapped_bytes() const = 0;
  // Returns the file that the set is mapped from. The path is empty if the set is in no file, or was derived from
  // another set.
  virtual std::filesystem::path path() const { return {}; }
};

// Statistics of the sizes of graphs. Threads: pure.

// Returns the statistics of the whole set. Both spans have graphs + 1 offsets.
SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets);
// Returns the statistics of some graphs of the set.
SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets,
                                 std::span<const uint32_t> graphs);

// A set of graphs that is derived from another set and keeps it alive. Methods that a subclass does not override
// return the original set's values. However, content_checksum() returns 0, and path() is empty. Threads: same as
// GraphSet.
class DerivedSet : public GraphSet {
 public:
  const GraphSetSummary& summary() const override { return summary_; }
  uint64_t checksum() const override { return checksum_; }
  absl::StatusOr<std::span<const uint64_t>> node_offsets() const override { return set_->node_offsets(); }
  absl::StatusOr<std::span<const uint64_t>> edge_offsets() const override { return set_->edge_offsets(); }
  absl::StatusOr<std::span<const uint32_t>> edge_source() const override { return set_->edge_source(); }
  absl::StatusOr<std::span<const uint32_t>> edge_target() const override { return set_->edge_target(); }
  absl::StatusOr<FeatureTable> node_features() const override { return set_->node_features(); }
  absl::StatusOr<FeatureTable> edge_features() const override { return set_->edge_features(); }
  absl::StatusOr<FeatureTable> positions() const override { return set_->positions(); }
  absl::StatusOr<std::span<const float>> labels() const override { return set_->labels(); }
  absl::StatusOr<std::optional<Categories>> categories() const override { return set_->categories(); }
  absl::StatusOr<std::span<const uint32_t>> split(Split split) const override { return set_->split(split); }
  absl::Status CheckIntact() const override { return set_->CheckIntact(); }
  absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const override {
    return set_->VerifyAll(progress);
  }
  uint64_t mapped_bytes() const override { return set_->mapped_bytes(); }

 protected:
  // `checksum` is the checksum of the derived set, and must differ from the checksum of `set`.
  DerivedSet(std::shared_ptr<const GraphSet> set, GraphSetSummary summary, uint64_t checksum)
      : set_(std::move(set)), summary_(std::move(summary)), checksum_(checksum) {}

  const std::shared_ptr<const GraphSet> set_;
  GraphSetSummary summary_;
  const uint64_t checksum_;
};

}  // namespace permafrost::data
