// Puts tables of dense features into the store.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/renumbering.h"
#include "data/source/import_options.h"
#include "data/source/source_file.h"
#include "data/store/store_writer.h"
#include "data/store/types.h"

namespace permafrost::data {

// A table that is due: its section, how many rows it must have and why.
struct DueTable {
  SectionKind section;
  uint64_t rows = 0;
  std::string why;  // "as raw/num-node-list.csv says"
  // For node features only.
  FeatureType as = FeatureType::kAsIs;
  const Renumbering* renumbering = nullptr;  // none where there is none
  uint64_t memory_bytes = 0;                 // for rows that are renumbered
};

// Tables of features, from text or arrays, into the store.
// Threads: one at a time. Memory: a piece of the table, and what FeatureSink takes.

// Both functions store the table as `due` asks for. `directory`: for temporary files.

// A CSV table: int32 where every cell is an integer, else float32; float32 where `due` asks for a type.
absl::StatusOr<FeatureSummary> WriteFeatureRows(const SourceFile& file, const DueTable& due,
                                                const std::filesystem::path& directory, ImportMonitor& monitor,
                                                GraphWriter& writer);
// An NPY table [rows, width] or [rows], of '<f4', '<f2', '<f8' (as float32), '|u1', '|b1' (as uint8), '<i4', '<i8'; of
// '<u2' where it is `bfloat16`, and of nothing else then.
absl::StatusOr<FeatureSummary> WriteFeatureArray(const SourceFile& file, bool bfloat16, const DueTable& due,
                                                 const std::filesystem::path& directory, ImportMonitor& monitor,
                                                 GraphWriter& writer);

// Returns InvalidArgument if options.feature_type asks for a type and `found`, a graph's node features, is not dense.
absl::Status CheckConverted(const ImportOptions& options, const FeatureSummary& found);

// Columns of a file's table: read from its first row, or its header.
absl::StatusOr<int64_t> FeatureRowsWidth(const SourceFile& file, ImportMonitor& monitor);
absl::StatusOr<int64_t> FeatureArrayWidth(const SourceFile& file, ImportMonitor& monitor);

}  // namespace permafrost::data
