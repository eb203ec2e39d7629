// Checks the sections of a graph's store against its summary, for its writer and its reader alike.
// Threads: pure.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "data/store/format.h"
#include "data/store/graph.h"

namespace permafrost::data {

// nullptr where there is none.
const SectionEntry* FindEntry(std::span<const SectionEntry> entries, SectionKind kind);

// `entries`: block_checksums apart. Ok, or DataLoss naming the section and the field that does not add up.
absl::Status CheckGraphSections(const GraphSummary& summary, std::span<const SectionEntry> entries);

// The bytes of all sections that hold edges and offsets.
uint64_t AdjacencyBytes(std::span<const SectionEntry> entries);

}  // namespace permafrost::data
