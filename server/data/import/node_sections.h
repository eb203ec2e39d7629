// Labels and splits of one large graph, into the store.
// Threads: one at a time. Memory: a bit a node; splits: 12 bytes a node.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/split_files.h"
#include "data/source/import_monitor.h"
#include "data/source/npy_array.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

// Which nodes have a label, by row.
using LabelledNodes = std::vector<bool>;

// Writes labels, and sets what the summary says of them; `labelled` gets the nodes with at least one.
// CSV: a row a node, empty, nan or NA where missing. `why`: where the number of nodes is from.
absl::Status WriteLabelRows(const SourceFile& file, uint64_t nodes, const std::string& why, ImportMonitor& monitor,
                            GraphWriter& writer, GraphSummary& summary, LabelledNodes& labelled);
// NPY: [nodes] or [nodes, targets] of integers or floats, NaN where missing.
absl::Status WriteLabelArray(const SourceFile& file, uint64_t nodes, const std::string& why, ImportMonitor& monitor,
                             GraphWriter& writer, GraphSummary& summary, LabelledNodes& labelled);

// Of arrays of rows, or of masks [nodes] of 0 and 1. Each node stands in one split at most. Memory: a byte a node.
absl::StatusOr<SplitGraphs> ReadSplitArrays(const std::array<SourceFile, 3>& files, bool masks, uint64_t nodes,
                                            ImportMonitor& monitor);
// Sorts and writes the splits, and sets what the summary says of them.
absl::Status WriteSplits(SplitGraphs split, GraphWriter& writer, GraphSummary& summary);
// A seeded one of the nodes that have labels.
SplitGraphs DrawNodeSplit(const ImportOptions& options, const LabelledNodes& labelled);

}  // namespace permafrost::data
