// Checks the sections of a store's file, and converts its summary to and from JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/format.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// Checks of a large graph's sections against its summary. The writer and the reader of a graph both make them.
// Threads: pure.

// Returns null if there is no such entry.
const SectionEntry* FindEntry(std::span<const SectionEntry> entries, SectionKind kind);

// Returns Ok, or a DataLoss that names the inconsistent section and field. `entries` must not include
// block_checksums.
absl::Status CheckGraphSections(const GraphSummary& summary, std::span<const SectionEntry> entries);

// Returns the bytes of all sections that hold edges and offsets.
uint64_t AdjacencyBytes(std::span<const SectionEntry> entries);

// Checks that the summary of the features has either no ranges, or one range for each column.
absl::Status CheckRanges(SectionKind kind, const FeatureSummary& features);

// Conversion of a store's section `summary` to and from JSON. The JSON leaves out store_bytes and adjacency_bytes,
// which follow from the file's length and its table.
// Threads: pure.

std::string SummaryToJson(const GraphSetSummary& summary);
// Returns DataLoss, naming the field, if a field is missing or of another type. Fields that older versions did not
// write may be missing.
absl::StatusOr<GraphSetSummary> SummaryFromJson(std::string_view text);

std::string GraphSummaryToJson(const GraphSummary& summary);
// Returns DataLoss, naming the field, if a field is of another type. A missing field keeps its default.
absl::StatusOr<GraphSummary> GraphSummaryFromJson(std::string_view text);

}  // namespace permafrost::data
