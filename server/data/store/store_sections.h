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

// Checks of a large graph's sections against its summary. Both the writer and the reader of a graph make these
// checks. Threads: pure.

// Returns null if there is no such entry.
const SectionEntry* FindEntry(std::span<const SectionEntry> entries, SectionKind kind);

// Checks all sections. Returns DataLoss, naming the section and the field, if one is inconsistent. `entries` must not
// include block_checksums.
absl::Status CheckGraphSections(const GraphSummary& summary, std::span<const SectionEntry> entries);

// Returns the bytes of all sections that hold edges and offsets.
uint64_t AdjacencyBytes(std::span<const SectionEntry> entries);

// Checks that `features` has either no ranges, or one range for each column. `kind` names the section in the error.
absl::Status CheckRanges(SectionKind kind, const FeatureSummary& features);

// Conversion of a store's section `summary` to and from JSON. The JSON leaves out store_bytes and adjacency_bytes,
// since the file's length and section table give them.
// Threads: pure.

std::string SummaryToJson(const GraphSetSummary& summary);
// Returns DataLoss, naming the field, if a field is missing or of another type. Fields that older versions did not
// write may be missing.
absl::StatusOr<GraphSetSummary> SummaryFromJson(std::string_view text);

std::string GraphSummaryToJson(const GraphSummary& summary);
// Returns DataLoss, naming the field, if a field is of another type. A missing field keeps its default.
absl::StatusOr<GraphSummary> GraphSummaryFromJson(std::string_view text);

}  // namespace permafrost::data
