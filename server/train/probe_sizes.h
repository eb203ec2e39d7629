// Sizes of the batches that a capture for every shape is made from. They differ from probe to probe in each dimension,
// and in each in a way of its own, so that an integer follows from them in one way only.
// Threads: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/step.h"
#include "device/step_program.h"

namespace permafrost::train {

// Returns what probe 1, 2, ... has in a dimension above `least`: another size for each of them, `least` + `range` at
// most, or `least` + kLeastSpread where that is more.
inline constexpr int64_t kLeastSpread = 15;
int64_t ProbeSize(size_t probe, size_t dimension, int64_t least, int64_t range);

// The first is `ceiling`, or 2 where it is less. The others lie between its half and itself where that leaves room;
// above it in small dimensions, or in all: not `below`.
std::array<BatchShape, device::kDynamicProbes> ProbeShapes(const BatchShape& ceiling, bool below);

}  // namespace permafrost::train
