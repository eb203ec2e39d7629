// Checks the sections of a store's file, and writes and reads its summary.
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

// Checks the sections of a graph's store against its summary, for its writer and its reader alike.
// Threads: pure.

// nullptr where there is none.
const SectionEntry* FindEntry(std::span<const SectionEntry> entries, SectionKind kind);

// `entries`: block_checksums apart. Ok, or DataLoss naming the section and the field that does not add up.
absl::Status CheckGraphSections(const GraphSummary& summary, std::span<const SectionEntry> entries);

// The bytes of all sections that hold edges and offsets.
uint64_t AdjacencyBytes(std::span<const SectionEntry> entries);

// A summary's ranges of feature columns: none, or one for each column.
absl::Status CheckRanges(SectionKind kind, const FeatureSummary& features);

// These functions write and read the JSON text of a store's section `summary`. It leaves out store_bytes and
// adjacency_bytes, which the file's length and its table say.
// Threads: pure.

std::string SummaryToJson(const GraphSetSummary& summary);
// DataLoss naming what is missing or of another type.
absl::StatusOr<GraphSetSummary> SummaryFromJson(std::string_view text);

std::string GraphSummaryToJson(const GraphSummary& summary);
// DataLoss naming what is of another type; what is missing keeps its default.
absl::StatusOr<GraphSummary> GraphSummaryFromJson(std::string_view text);

}  // namespace permafrost::data
