// Labels, positions, times and splits of one large graph, into the store.
// Threads: one at a time. Memory: a bit a node; splits: 12 bytes a node; where rows are
// renumbered, what RowSpool takes.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/import/split_files.h"
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

}  // namespace permafrost::data
