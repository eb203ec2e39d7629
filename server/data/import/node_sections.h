// Writes labels, positions, times, splits and sparse features of one large graph into the store.
// Threads: one at a time. Memory: one bit per node; for splits 12 bytes per node; if rows are renumbered, also the
// memory of a RowSpool.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/import/split_files.h"
#include "data/sort/edge_sorter.h"
#include "data/source/import_options.h"
#include "data/source/npy_array.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

// Element i is true if the node in row i of the source has a label.
using LabelledNodes = std::vector<bool>;

// The requirements of labels: the number of nodes, where that number comes from (`why`), and the renumbering of rows.
struct DueLabels {
  uint64_t nodes = 0;
  const std::string& why;
  const Renumbering& renumbering;
  const std::filesystem::path& directory;  // for temporary files
  uint64_t memory_bytes = 0;               // for renumbering rows
};

// Writes the labels and sets the summary's fields about labels. Marks the nodes with at least one label in
// `labelled`. The file is a CSV table with one row per node. A missing label is an empty cell, nan, NaN or NA.
absl::Status WriteLabelRows(const SourceFile& file, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary, LabelledNodes& labelled);
// Same as WriteLabelRows, for an NPY array [nodes] or [nodes, targets] of integers or floats. A missing label is NaN.
absl::Status WriteLabelArray(const SourceFile& file, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer,
                             GraphSummary& summary, LabelledNodes& labelled);

// Writes the times of nodes from an NPY array [nodes] of integers, and sets summary.node_times.
absl::Status WriteTimeArray(const SourceFile& file, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary);

// Writes positions from an NPY or CSV table [nodes, columns] of finite numbers, and sets summary.position_columns.
// Errors: InvalidArgument for more than kMaxPositionColumns.
absl::Status WritePositions(const SourceFile& file, bool is_array, const DueLabels& due, ImportMonitor& monitor,
                            GraphWriter& writer, GraphSummary& summary);

// Reads a split from three arrays of node rows or, with `masks`, from three masks [nodes] of 0 and 1. Errors:
// InvalidArgument, for example if a node is in two splits. Memory: one byte per node.
absl::StatusOr<SplitGraphs> ReadSplitArrays(const std::array<SourceFile, 3>& files, bool masks, uint64_t nodes,
                                            ImportMonitor& monitor);
// Renumbers, sorts and writes the splits, and sets the summary's fields about splits.
absl::Status WriteSplits(SplitGraphs split, const Renumbering& renumbering, GraphWriter& writer, GraphSummary& summary);
// Draws a split of the labelled nodes, seeded by `options`. The split holds rows of the source, so it does not depend
// on the order of the store.
SplitGraphs DrawNodeSplit(const ImportOptions& options, const LabelledNodes& labelled);

// Imports sparse node features from text or from a SciPy matrix, and sorts them by node and column.
// Threads: one at a time. Memory: EdgeSorterOptions::memory_bytes, plus 8 bytes per node and 24 per column. The bytes
// for nodes and columns must fit in limits.memory_bytes.
class SparseFeaturesImport {
 public:
  // Reads rows "node,feature[,value]" in any order. Without the third column all values are 1. `why` is a text in
  // parentheses that says where the number of nodes comes from. Borrows `renumbering`, which applies to the nodes.
  static absl::StatusOr<SparseFeaturesImport> ReadRows(const SourceFile& file, uint64_t nodes, const std::string& why,
                                                       const Renumbering& renumbering, const EdgeSorterOptions& sorting,
                                                       ImportMonitor& monitor);
  // Reads a CSR matrix of scipy.sparse.save_npz.
  static absl::StatusOr<SparseFeaturesImport> ReadMatrix(const SourceFile& file, uint64_t nodes, const std::string& why,
                                                         const Renumbering& renumbering,
                                                         const EdgeSorterOptions& sorting, ImportMonitor& monitor);
  // Returns the number of nonzero entries.
  uint64_t entries() const { return entries_; }
  // Returns the number of columns. For text, it is the largest feature plus 1.
  uint64_t width() const { return width_; }

  // Writes all entries. Call it once. `width` must be at least width(). Sets summary.node_features and
  // summary.node_feature_nonzeros. Errors: InvalidArgument for a feature that a node has twice; ResourceExhausted.
  absl::Status Write(uint64_t width, const std::filesystem::path& directory, ImportMonitor& monitor,
                     GraphWriter& writer, GraphSummary& summary);

 private:
  SparseFeaturesImport(std::string name, uint64_t nodes, const Renumbering& renumbering,
                       const EdgeSorterOptions& sorting, ImportMonitor& monitor)
      : name_(std::move(name)),
        nodes_(nodes),
        renumbering_(&renumbering),
        sorted_(std::make_unique<EdgeSorter<WeightedEdge>>(sorting, monitor.stop())) {}

  std::string name_;
  uint64_t nodes_, entries_ = 0, width_ = 0;
  const Renumbering* renumbering_;
  std::unique_ptr<EdgeSorter<WeightedEdge>> sorted_;
};

}  // namespace permafrost::data
