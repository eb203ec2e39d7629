// Tables of features, from text or arrays, into the store.
// Threads: one at a time. Memory: a piece of the table, and what FeatureSink takes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/import/feature_sink.h"
#include "data/source/import_monitor.h"
#include "data/source/source_file.h"
#include "data/store/graph_writer.h"
#include "data/store/types.h"

namespace permafrost::data {

// Both store the table as `due` asks for. `directory`: for temporary files.

// A CSV table: int32 where every cell is an integer, else float32; float32 where `due` asks for a type.
absl::StatusOr<FeatureSummary> WriteFeatureRows(const SourceFile& file, const DueTable& due,
                                                const std::filesystem::path& directory, ImportMonitor& monitor,
                                                GraphWriter& writer);
// An NPY table [rows, width] or [rows], of '<f4', '<f2', '<f8' (as float32), '|u1', '|b1' (as uint8), '<i4', '<i8'; of
// '<u2' where it is `bfloat16`, and of nothing else then.
absl::StatusOr<FeatureSummary> WriteFeatureArray(const SourceFile& file, bool bfloat16, const DueTable& due,
                                                 const std::filesystem::path& directory, ImportMonitor& monitor,
                                                 GraphWriter& writer);

// InvalidArgument where options.feature_type asks for a type and `found`, of a graph's nodes, is not dense.
absl::Status CheckConverted(const ImportOptions& options, const FeatureSummary& found);

// Columns of a file's table: read from its first row, or its header.
absl::StatusOr<int64_t> FeatureRowsWidth(const SourceFile& file, ImportMonitor& monitor);
absl::StatusOr<int64_t> FeatureArrayWidth(const SourceFile& file, ImportMonitor& monitor);

}  // namespace permafrost::data
