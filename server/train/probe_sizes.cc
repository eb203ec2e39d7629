#include "train/probe_sizes.h"

#include <algorithm>

#include "base/random.h"
#include "graphcache/executable.h"

namespace permafrost::train {
namespace {

constexpr int64_t kVaried = device::kDynamicProbes - 1;
// Half of a dimension smaller than this has no room for different sizes.
constexpr int64_t kLeastHalved = 64;

}  // namespace

int64_t ProbeSize(size_t probe, size_t dimension, int64_t least, int64_t range) {
  // Each probe has a part of the range of its own, in another order in each dimension.
  const int64_t part = std::max(range, kLeastSpread) / kVaried;
  SplitMix64 random(dimension, probe);
  const int64_t place = static_cast<int64_t>((probe + dimension) % kVaried);
  return least + 1 + place * part + static_cast<int64_t>(random.Below(static_cast<uint64_t>(part)));
}

std::array<BatchShape, device::kDynamicProbes> ProbeShapes(const BatchShape& ceiling, bool below) {
  const BatchShape first = graphcache::AtLeastDynamic(ceiling);
  std::array<BatchShape, device::kDynamicProbes> shapes{first};
  const auto size = [&](size_t probe, size_t dimension, int64_t most) {
    // The last of the upper half is the ceiling itself.
    if (below && most >= kLeastHalved) return ProbeSize(probe, dimension, most / 2, (most - 1) / 2) - 1;
    return ProbeSize(probe, dimension, most, most / 32);
  };
  for (size_t p = 1; p < shapes.size(); ++p) {
    shapes[p] = {size(p, 0, first.nodes), size(p, 1, first.edges), size(p, 2, first.graphs)};
  }
  return shapes;
}

}  // namespace permafrost::train
