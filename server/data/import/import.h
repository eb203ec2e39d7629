// Reads a source of any known format into a store.
#pragma once

#include <filesystem>
#include <stop_token>

#include "absl/status/statusor.h"
#include "data/source/import_options.h"
#include "data/store/dataset.h"

namespace permafrost::data {

// Writes a complete, synced store into `directory` (which exists and is empty) and returns its summary.
// options: as CheckImportOptions accepts them. kAuto: a file NAME.zip is kTu and any other an edge list; a directory
// with raw/graph-label.csv[.gz|.zst] is kOgbGraphs; one with raw/edge.csv[.gz|.zst] is kOgbNodes; one with
// edge_index.npy or adj.npz is kNpy; one with NAME_graph_indicator.txt, in it or in its raw/, is kTu. kOgbGraphs
// without labels is read where it is named.
// An option that the format does not use is refused. Files that are not read are told in a note, or refused where they
// were surely meant to be read (import/unread_files.h).
// Threads: reads on the calling thread, which the observer is called on too; sorts over limits.threads.
// Memory: as `limits` and options.memory_bytes say; one large graph is sorted on disk where it does not fit.
// Errors: InvalidArgument with one line "FILE:ROW: FIELD: what, value, what would be accepted" (COLUMN too where a cell
// is meant: "FILE:ROW:COLUMN") for wrong counts, ids out of range, ragged rows, not-a-number cells, truncated or
// corrupt packings, duplicate split ids; NotFound for missing files; ResourceExhausted beyond the limits;
// PermissionDenied for what the system does not let be read; what limits.may_read says; Cancelled when `stop` is
// requested; transient (base/status.h) where the machine fails, so that the same import may succeed later. The caller
// removes `directory` on any error.
absl::StatusOr<ImportedSummary> Import(const ImportOptions& options, const std::filesystem::path& directory,
                                       const ImportObserver& observer, std::stop_token stop,
                                       const ImportLimits& limits = {});

// Ok if Import would find its source: its format is known, and its files are there and go with each other and the
// options. Reads no rows. Errors: as Import's, as far as they can be told so.
absl::Status CheckSource(const ImportOptions& options, const ImportLimits& limits);

}  // namespace permafrost::data
