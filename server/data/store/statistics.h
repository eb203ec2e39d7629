// Sizes of graphs as numbers. Threads: pure.
#pragma once

#include <cstdint>
#include <span>

#include "data/store/types.h"

namespace permafrost::data {

// The statistics of the whole set. offsets: [graphs + 1].
SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets);
// The statistics of some of its graphs.
SizeStatistics ComputeStatistics(std::span<const uint64_t> node_offsets, std::span<const uint64_t> edge_offsets,
                                 std::span<const uint32_t> graphs);

}  // namespace permafrost::data
