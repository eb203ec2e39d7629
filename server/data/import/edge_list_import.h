// Import of one large graph from a file of edges.
// Threads: one at a time; parses and sorts over several by itself.
#pragma once

#include <filesystem>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/source/import_monitor.h"
#include "data/source/source_file.h"
#include "data/store/graph.h"
#include "data/store/graph_writer.h"

namespace permafrost::data {

// options.source, whatever its packing.
absl::StatusOr<SourceFile> FindEdgeList(const ImportOptions& options);
// Writes all sections and sets all of the summary but what Finish does.
absl::Status ImportEdgeList(const ImportOptions& options, const SourceFile& file,
                            const std::filesystem::path& directory, ImportMonitor& monitor, GraphWriter& writer,
                            GraphSummary& summary);

}  // namespace permafrost::data
