// An integer of a step that follows from the sizes of its batch.
// Threads: values and pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace permafrost::graphcache {

// plus + the sum of factor * size over at most two sizes.
struct SizeSum {
  struct Term {
    size_t size = 0;  // among the sizes
    int64_t factor = 1;
    bool operator==(const Term&) const = default;
  };
  std::vector<Term> terms;
  int64_t plus = 0;
  int64_t At(std::span<const int64_t> sizes) const;
  bool operator==(const SizeSum&) const = default;
};

// The sum that gives `values` at the shapes whose sizes are `sizes`, [shapes][sizes]; of several the plainest: a size
// itself, a size and a constant, two sizes, a multiple of one. nullopt: there is none. The more the shapes differ,
// each size in its own way, the less does a sum come about by chance: three shapes at least.
std::optional<SizeSum> FindSum(std::span<const int64_t> values, std::span<const std::vector<int64_t>> sizes);

}  // namespace permafrost::graphcache
