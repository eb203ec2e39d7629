// Checks the sections of a store's file, and reads and writes categories as sections.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/store/block_guard.h"
#include "data/store/categories.h"
#include "data/store/format.h"
#include "data/store/graph.h"
#include "data/store/graph_set.h"
#include "data/store/store_file.h"

namespace permafrost::data {

// Checks the sections of a graph's store against its summary, for its writer and its reader alike.
// Threads: pure.

// nullptr where there is none.
const SectionEntry* FindEntry(std::span<const SectionEntry> entries, SectionKind kind);

// `entries`: block_checksums apart. Ok, or DataLoss naming the section and the field that does not add up.
absl::Status CheckGraphSections(const GraphSummary& summary, std::span<const SectionEntry> entries);

// The bytes of all sections that hold edges and offsets.
uint64_t AdjacencyBytes(std::span<const SectionEntry> entries);

// Categories as the sections of a store's file.
// Threads: pure functions.

// The texts of kNumberedCategories and kSeenCategories; empty where there is no such table.
struct CategorySections {
  std::string numbered, seen;
};
CategorySections SectionsOf(const Categories& categories);

// Makes the types and widths of the features those of `summary`, of either kind, and tells it of the tables.
template <class Summary>
void TakeCategories(Categories& categories, Summary& summary) {
  for (const auto& [features, of_summary] :
       {std::pair(&categories.node, &summary.node_features), std::pair(&categories.edge, &summary.edge_features)}) {
    features->type = of_summary->type;
    features->width = of_summary->width;
    of_summary->categories = Summarize(*features);
  }
  summary.categories_known = true;
}

// All tables of a file, beside features of these types and widths, which have no tables yet. Errors: DataLoss naming
// the file and the section.
absl::StatusOr<Categories> ReadCategories(const StoreFile& file, Categories features);

// Checks of a section's values, which a checksum cannot make: each checks one block, as BlockGuard runs them.
// Threads: safe anywhere. The checks borrow the values.

// Offsets that begin at 0, rise, also against the one before the block, and end at `total`.
BlockGuard::ContentCheck OffsetsCheck(std::span<const uint64_t> offsets, uint64_t total);
// Values below `bound`; `what` names one in messages.
BlockGuard::ContentCheck BelowCheck(std::span<const uint32_t> values, uint64_t bound, std::string what);
BlockGuard::ContentCheck BelowCheck(std::span<const uint64_t> values, uint64_t bound, std::string what);

// A summary's ranges of feature columns: none, or one for each column.
absl::Status CheckRanges(SectionKind kind, const FeatureSummary& features);

}  // namespace permafrost::data
