// Labels, positions, times and splits of one large graph, into the store.
// Threads: one at a time. Memory: a bit a node; splits: 12 bytes a node; where rows are
// renumbered, what RowSpool takes.
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

// True for each node that has a label, by row of the source.
using LabelledNodes = std::vector<bool>;

// Labels that are due: for how many nodes, where that number is from, and how their rows are numbered.
struct DueLabels {
  uint64_t nodes = 0;
  const std::string& why;
  const Renumbering& renumbering;
  const std::filesystem::path& directory;  // for temporary files
  uint64_t memory_bytes = 0;               // for rows that are renumbered
};

// Writes labels, and sets what the summary says of them; `labelled` gets the nodes with at least one.
// CSV: a row a node, empty, nan or NA where missing.
absl::Status WriteLabelRows(const SourceFile& file, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary, LabelledNodes& labelled);
// NPY: [nodes] or [nodes, targets] of integers or floats, NaN where missing.
absl::Status WriteLabelArray(const SourceFile& file, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer,
                             GraphSummary& summary, LabelledNodes& labelled);

// NPY: [nodes] of integers. Sets what the summary says of them.
absl::Status WriteTimeArray(const SourceFile& file, const DueLabels& due, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary);

// Writes positions from a table [nodes, columns] of finite numbers, NPY or CSV, and sets their columns in the summary.
// InvalidArgument for more than kMaxPositionColumns.
absl::Status WritePositions(const SourceFile& file, bool is_array, const DueLabels& due, ImportMonitor& monitor,
                            GraphWriter& writer, GraphSummary& summary);

// Reads splits from arrays of rows, or from masks [nodes] of 0 and 1. Each node stands in one split at most. Memory: a
// byte a node.
absl::StatusOr<SplitGraphs> ReadSplitArrays(const std::array<SourceFile, 3>& files, bool masks, uint64_t nodes,
                                            ImportMonitor& monitor);
// Renumbers, sorts and writes the splits, and sets what the summary says of them.
absl::Status WriteSplits(SplitGraphs split, const Renumbering& renumbering, GraphWriter& writer, GraphSummary& summary);
// A seeded one of the nodes that have labels, in rows of the source: the same whatever their order in the store.
SplitGraphs DrawNodeSplit(const ImportOptions& options, const LabelledNodes& labelled);

// Sparse node features, from text or a SciPy matrix, into the store: sorted by node and column.
// Threads: one at a time. Memory: as given for sorting; 8 bytes a node and 24 a column, which limits.memory_bytes must
// hold.
class SparseFeaturesImport {
 public:
  // Rows "node,feature[,value]" in any order; where the third column is missing, values are 1.
  // `why`: where the number of nodes is from, in parentheses. `renumbering`, borrowed: of the nodes.
  static absl::StatusOr<SparseFeaturesImport> ReadRows(const SourceFile& file, uint64_t nodes, const std::string& why,
                                                       const Renumbering& renumbering, const EdgeSorterOptions& sorting,
                                                       ImportMonitor& monitor);
  // A CSR matrix of scipy.sparse.save_npz.
  static absl::StatusOr<SparseFeaturesImport> ReadMatrix(const SourceFile& file, uint64_t nodes, const std::string& why,
                                                         const Renumbering& renumbering,
                                                         const EdgeSorterOptions& sorting, ImportMonitor& monitor);
  // Entries read, zeros apart.
  uint64_t entries() const { return entries_; }
  // The width of a matrix; else one more than the largest feature.
  uint64_t width() const { return width_; }

  // Writes all, once; sets node_features and node_feature_nonzeros. `width`: at least width().
  // Errors: InvalidArgument for a feature that stands twice at one node; ResourceExhausted.
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
