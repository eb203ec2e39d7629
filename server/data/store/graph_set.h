// A set of many small graphs as it lies on disk: memory-mapped, columnar, checked.
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

// A row-major table of features, one row a node or an edge. kNone has width 0.
struct FeatureTable {
  DataType type = DataType::kNone;
  int64_t width = 0;
  std::span<const int32_t> ints;  // rows * width when kInt32, else empty
  std::span<const float> floats;  // rows * width when kFloat32, else empty
};

struct GraphSetSummary {
  SizeStatistics all;
  std::array<SizeStatistics, 3> splits;  // by Split
  FeatureSummary node_features, edge_features;
  int64_t position_columns = 0;  // 0: the nodes have no positions
  int64_t num_targets = 0;
  int64_t num_missing_labels = 0;
  // Over all labels that are there; known: false in stores of versions that did not look.
  bool labels_known = false, integer_labels = false;
  double min_label = 0, max_label = 0;
  // The names that the source gives the classes 0, 1, ... if the import renumbered them, rising; else empty.
  std::vector<int64_t> class_values;
  // Tells what the features were made of, if the source's table is not simply taken over: "labels", "degree".
  std::string node_feature_origin, edge_feature_origin;
  // Edges beyond the first with equal ends, as stored: dropped by `coalesce`, else kept. Older versions counted them
  // in a TUDataset alone.
  int64_t duplicate_edges = 0;
  // Lines that the import told its user: how it read what can be read in more ways than one, and files that it did not
  // read. Each is one line of UTF-8.
  std::vector<std::string> notes;
  // True if the import kept what categories stand for (GraphSet::categories); older versions did not.
  bool categories_known = false;
  uint64_t store_bytes = 0;
  std::string split_name;  // "random" for a seeded one
  bool inverse_edges_added = false;
  EdgeDirections directions = EdgeDirections::kUnknown;
};

// An open store. Opening reads the header only and copies nothing; each section's checksum is verified the first time
// that it is asked for.
// Threads: all methods are safe anywhere.
// Invariant: once a section was handed out its offsets and ids are in range (offsets rise, edge ends < nodes of their
// graph). Owns the mapping; spans live as long as the GraphSet.
class GraphSet {
 public:
  // The file in a dataset's directory.
  static constexpr std::string_view kFileName = "graphs.pfg";

  // `directory`: datasets/NAME. Errors: NotFound; DataLoss naming the field that does not add up (magic, counts,
  // lengths, header checksum); FailedPrecondition for a later version or the other byte order; those of SystemError.
  static absl::StatusOr<std::shared_ptr<const GraphSet>> Open(const std::filesystem::path& directory);
  virtual ~GraphSet() = default;

  // From the header; computed once, at import.
  virtual const GraphSetSummary& summary() const = 0;
  // The checksum of the header, the sections' table, and through it of all that the file holds: sets with one checksum
  // are equal.
  virtual uint64_t checksum() const = 0;
  // The same whatever the summary says. 0: it is of no file.
  virtual uint64_t content_checksum() const { return 0; }

  // Errors of all that follow: DataLoss naming file and section when its checksum or content does not add up.
  // [graphs + 1] first node and first edge of each graph.
  virtual absl::StatusOr<std::span<const uint64_t>> node_offsets() const = 0;
  virtual absl::StatusOr<std::span<const uint64_t>> edge_offsets() const = 0;
  // [edges] node ids within the graph, 0-based; edges of a graph are sorted by target, then by file order.
  virtual absl::StatusOr<std::span<const uint32_t>> edge_source() const = 0;
  virtual absl::StatusOr<std::span<const uint32_t>> edge_target() const = 0;
  virtual absl::StatusOr<FeatureTable> node_features() const = 0;
  virtual absl::StatusOr<FeatureTable> edge_features() const = 0;
  // One float32 row for each node; kNone if the set has no positions.
  virtual absl::StatusOr<FeatureTable> positions() const { return FeatureTable(); }
  // [graphs * num_targets], NaN where missing; or empty: all are.
  virtual absl::StatusOr<std::span<const float>> labels() const = 0;
  // Returns what the categories of its columns stand for; nullopt: an older version imported it, which did not keep
  // that.
  virtual absl::StatusOr<std::optional<Categories>> categories() const { return std::optional<Categories>(); }
  // Graph ids of a split, in file order.
  virtual absl::StatusOr<std::span<const uint32_t>> split(Split split) const = 0;
  // DataLoss, naming the file, once it was cut short or written to since Open; transient, once the disk did not give
  // some of it: opening it anew may help. Values that were read from spans before may be anything then: take them for
  // true only if this is Ok after the reading. Until then they may be zeros or break the invariant.
  virtual absl::Status CheckIntact() const = 0;
  // Verifies every section there is. `progress` hears of bytes done and in all and returns whether to go on; Cancelled
  // when not.
  virtual absl::Status VerifyAll(const std::function<bool(uint64_t done, uint64_t total)>& progress) const = 0;
  // Bytes mapped.
  virtual uint64_t mapped_bytes() const = 0;
  // The file that it is mapped from. Empty: it is in no file, or derived from one that is.
  virtual std::filesystem::path path() const { return {}; }
};

// Sizes of graphs as numbers. Threads: pure.

// The statistics of the whole set. offsets: [graphs + 1].
SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets);
// The statistics of some of its graphs.
SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets,
                                 std::span<const uint32_t> graphs);

// A set of graphs made of another one, which it keeps alive: what it does not tell otherwise is the other's.
// Threads: as GraphSet.
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
  // `checksum`: of this set, another than the other's.
  DerivedSet(std::shared_ptr<const GraphSet> set, GraphSetSummary summary, uint64_t checksum)
      : set_(std::move(set)), summary_(std::move(summary)), checksum_(checksum) {}

  const std::shared_ptr<const GraphSet> set_;
  GraphSetSummary summary_;
  const uint64_t checksum_;
};

}  // namespace permafrost::data
