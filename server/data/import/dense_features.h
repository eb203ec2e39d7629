// Writes tables of dense features into the store.
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

// The requirements of a table: its section, its number of rows, and where that number comes from (`why`).
struct DueTable {
  SectionKind section;
  uint64_t rows = 0;
  std::string why;  // for messages: "as raw/num-node-list.csv says"
  // The next three fields are only for tables with one row per node.
  FeatureType as = FeatureType::kAsIs;
  const Renumbering* renumbering = nullptr;  // null if rows are not renumbered
  uint64_t memory_bytes = 0;                 // of the RowSpool for renumbered or int8 rows
};

// The next two functions read a table of features and write it into the store as `due` requires. `directory` is for
// temporary files.
// Threads: one at a time. Memory: a piece of the table, and what FeatureSink (dense_features.cc) takes.

// Writes a CSV table. The stored table is int32 if every cell is an integer, and float32 otherwise. If due.as asks
// for a type, the cells are read as float32 and then converted to this type.
absl::StatusOr<FeatureSummary> WriteFeatureRows(const SourceFile& file, const DueTable& due,
                                                const std::filesystem::path& directory, ImportMonitor& monitor,
                                                GraphWriter& writer);
// Writes an NPY table [rows, width] or [rows]. Accepted types are '<f4', '<f2', '<f8' (read as float32), '|u1', '|b1'
// (read as uint8), '<i4' and '<i8'. With `bfloat16`, only '<u2' is accepted, and its bits are stored as bfloat16.
absl::StatusOr<FeatureSummary> WriteFeatureArray(const SourceFile& file, bool bfloat16, const DueTable& due,
                                                 const std::filesystem::path& directory, ImportMonitor& monitor,
                                                 GraphWriter& writer);

// If options.feature_type asks for a type, checks that the node features `found` are dense. Errors: InvalidArgument.
absl::Status CheckConverted(const ImportOptions& options, const FeatureSummary& found);

// Returns the number of columns of a CSV table, by its first row.
absl::StatusOr<int64_t> FeatureRowsWidth(const SourceFile& file, ImportMonitor& monitor);
// Returns the number of columns of an NPY table, by its header.
absl::StatusOr<int64_t> FeatureArrayWidth(const SourceFile& file, ImportMonitor& monitor);

}  // namespace permafrost::data
