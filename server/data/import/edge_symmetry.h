// Whether a list of edges has both directions of each: every (u, v), u != v, as often as (v, u). Equal edges count; a
// self-loop is its own inverse.
// The list is read once, in any order, in constant memory: each edge adds a 128-bit hash of its unordered ends to one
// sum or another, by its direction, and the sums are compared. A list without both directions passes by a chance below
// 2^-80; the hash has a random key of this process's, so that no list can be made to pass.
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

  // Whether both directions are there, so far.
  bool ends_match() const { return ends_[0] == ends_[1]; }
  // Whether they are with equal weights and timestamps.
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
