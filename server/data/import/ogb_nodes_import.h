// Import of one large graph of OGB's node-property CSV layout; tables may be NPY or NPZ files of the same stems.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
// Threads: one at a time; parses and sorts over several by itself.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/split_files.h"
#include "data/source/import_monitor.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

// A table in either form.
struct TableFile {
  SourceFile file;
  bool is_array = false;  // NPY, or NPZ where it is sparse
};

struct OgbNodeFiles {
  SourceFile node_counts, edges;
  std::optional<SourceFile> edge_counts;
  std::optional<TableFile> dense_features, sparse_features, labels, edge_weights, edge_features;
  std::optional<SplitFiles> split;

  int64_t bytes() const;
};

absl::StatusOr<OgbNodeFiles> FindOgbNodeFiles(const ImportOptions& options);
// Writes all sections and sets all of the summary but what Finish does.
absl::Status ImportOgbNodes(const ImportOptions& options, const OgbNodeFiles& files,
                            const std::filesystem::path& directory, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary);

}  // namespace permafrost::data
