#include "data/import/edge_symmetry.h"

#include <algorithm>
#include <bit>
#include <random>

#include "base/hash.h"

namespace permafrost::data {
namespace {

uint64_t RandomKey() {
  std::random_device random;
  return std::uniform_int_distribution<uint64_t>()(random);
}

// EdgeSymmetry hashes the bytes of these structs for each edge, so they have no padding.
struct UnorderedEnds {
  uint64_t key = 0;
  EdgeKey ends = 0;  // the smaller row above
};
struct ValuedEnds {
  UnorderedEnds ends;
  int64_t timestamp = 0;
  uint64_t weight = 0;  // its bits
};

}  // namespace

EdgeSymmetry::EdgeSymmetry(bool values) : compares_values_(values), key_(RandomKey()) {}

template <class Record>
void EdgeSymmetry::Add(std::span<const Record> edges) {
  const auto add = [](Wide& sum, const auto& hashed) {
    const Hash128Value hash = Hash128(&hashed, sizeof(hashed));
    sum += static_cast<Wide>(hash.high) << 64 | hash.low;
  };
  for (const Record& edge : edges) {
    const NodeId major = MajorOf(edge.key), minor = MinorOf(edge.key);
    if (major == minor) continue;
    const size_t direction = major < minor ? 0 : 1;
    const UnorderedEnds ends{key_, MakeEdgeKey(std::min(major, minor), std::max(major, minor))};
    add(ends_[direction], ends);
    if constexpr (Record::kHasWeight) {
      if (!compares_values_) continue;
      ValuedEnds valued{.ends = ends};
      // Both zeros are one weight.
      valued.weight = std::bit_cast<uint32_t>(edge.weight == 0 ? 0.0F : edge.weight);
      if constexpr (Record::kHasAll) valued.timestamp = edge.timestamp;
      add(values_[direction], valued);
    }
  }
}

template void EdgeSymmetry::Add(std::span<const PlainEdge>);
template void EdgeSymmetry::Add(std::span<const WeightedEdge>);
template void EdgeSymmetry::Add(std::span<const FullEdge>);

}  // namespace permafrost::data
