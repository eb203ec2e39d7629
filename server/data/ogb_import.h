// Streaming import of OGB's graph-property CSV layout into a GraphSet.
// Source of the layout: Hu et al. 2020, "Open Graph Benchmark" (ogb/io/read_graph_raw.py).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/graph_set.h"

namespace permafrost::data {

struct ImportOptions {
  std::filesystem::path source;
  // Store each edge with its inverse, as OGB's reader does.
  bool add_inverse_edges = true;
  // Which of split/* to read; empty: the only one; none there: a seeded random one.
  std::string split;
  uint64_t split_seed = 0;
  // Of the random split; the rest is test.
  double train_fraction = 0.8;
  double valid_fraction = 0.1;
};

// Ok, or InvalidArgument with a violation for each option that cannot be, as "options.train_fraction".
absl::Status CheckImportOptions(const ImportOptions& options);

struct ImportProgress {
  std::string current_file;
  int64_t bytes_read = 0;
  int64_t bytes_total = 0;
};

// Called often, on the importing thread; must not block.
using ImportObserver = std::function<void(const ImportProgress&)>;

// A quarter of the machine's memory.
uint64_t DefaultImportMemory();

// What an import may take, whatever its source says: a small gzip can hold billions of rows.
struct ImportLimits {
  // Bytes of memory that each of these may take: what is kept for every graph, the edges of one graph, their features.
  // Larger: larger sets can be imported, and a hostile one takes more from the rest of the machine.
  uint64_t memory_bytes = DefaultImportMemory();
  // Whether a source file may be read that, now open, turns out to lie at this path, links resolved. Empty: any may.
  // Asked after opening, so that a link moved since an earlier check cannot lead elsewhere. Not asked where the system
  // does not tell (no /proc).
  std::function<bool(const std::filesystem::path&)> may_read;
};

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
