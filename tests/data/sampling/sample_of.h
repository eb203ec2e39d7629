// Draws one sample of a graph's neighbours, for tests that look at what was drawn.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <span>

#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {

inline SampledSubgraph SampleOf(const GraphView& view, const NeighborSamplingOptions& options,
                                std::span<const NodeId> seeds, uint64_t stream = 0, int threads = 2) {
  auto sampler = NeighborSampler::Create(view, options, threads);
  EXPECT_TRUE(sampler.ok()) << sampler.status();
  SampledSubgraph out;
  const absl::Status sampled = (*sampler)->Sample(seeds, stream, true, nullptr, out);
  EXPECT_TRUE(sampled.ok()) << sampled;
  return out;
}

}  // namespace permafrost::data
