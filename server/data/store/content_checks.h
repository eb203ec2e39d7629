// Checks of a section's values, which a checksum cannot make: each checks one block, as BlockGuard runs them.
// Threads: safe anywhere. The checks borrow the values.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/store/block_guard.h"
#include "data/store/format.h"
#include "data/store/graph_set.h"

namespace permafrost::data {

// Offsets that begin at 0, rise, also against the one before the block, and end at `total`.
BlockGuard::ContentCheck OffsetsCheck(std::span<const uint64_t> offsets, uint64_t total);
// Values below `bound`; `what` names one in messages.
BlockGuard::ContentCheck BelowCheck(std::span<const uint32_t> values, uint64_t bound, std::string what);
BlockGuard::ContentCheck BelowCheck(std::span<const uint64_t> values, uint64_t bound, std::string what);

// A summary's ranges of feature columns: none, or one for each column.
absl::Status CheckRanges(SectionKind kind, const FeatureSummary& features);

}  // namespace permafrost::data
