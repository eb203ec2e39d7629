// Tells whether a list of edges has both directions of each: every (u, v), u != v, as often as (v, u). Equal edges
// count; a self-loop is its own inverse.
// The list is read once, in any order, in constant memory. Each edge adds a 128-bit hash of its unordered ends to one
// of two sums, by its direction; then the sums are compared. A list without both directions passes by a chance below
// 2^-80. The hash has a random key that this process chose, so that no list can be made to pass.
// Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "data/sort/edge_records.h"

namespace permafrost::data {

class EdgeSymmetry {
 public:
  // values: whether weights and timestamps of the records are compared too.
  explicit EdgeSymmetry(bool values);

  template <class Record>
  void Add(std::span<const Record> edges);

  // True if the edges so far have both directions.
  bool ends_match() const { return ends_[0] == ends_[1]; }
  // True if both directions also have equal weights and timestamps.
  bool values_match() const { return ends_match() && values_[0] == values_[1]; }

 private:
  __extension__ using Wide = unsigned __int128;
  // Sums of the edges from a smaller to a larger node, and of the others.
  using Sums = std::array<Wide, 2>;

  const bool compares_values_;
  uint64_t key_ = 0;
  Sums ends_{}, values_{};
};

extern template void EdgeSymmetry::Add(std::span<const PlainEdge>);
extern template void EdgeSymmetry::Add(std::span<const WeightedEdge>);
extern template void EdgeSymmetry::Add(std::span<const FullEdge>);

}  // namespace permafrost::data
