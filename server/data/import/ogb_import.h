// Streaming import of OGB's graph-property CSV layout into a GraphSet.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
#pragma once

#include <filesystem>
#include <stop_token>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/source/import_options.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// Writes a complete, synced store into `directory` (which exists and is empty) and returns its summary.
// Memory: bounded by the largest graph and the offsets, and so by `limits`; columns are streamed.
// Errors: InvalidArgument with one line "FILE:ROW: FIELD: what, value, what would be accepted" for wrong counts, ids
// out of range, ragged rows, not-a-number cells, a truncated gzip, duplicate or out-of-range split ids; NotFound for
// missing files; ResourceExhausted, "FILE:ROW: ..." too, beyond limits.memory_bytes; PermissionDenied for a file that
// limits.may_read refuses; Cancelled when `stop` is requested. The caller removes `directory` on any error.
absl::StatusOr<GraphSetSummary> ImportOgbGraphs(const ImportOptions& options, const std::filesystem::path& directory,
                                                const ImportObserver& observer, std::stop_token stop,
                                                const ImportLimits& limits = {});

}  // namespace permafrost::data
