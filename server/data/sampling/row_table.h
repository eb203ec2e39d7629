// Local rows of the nodes found so far: an open-addressing table as large as they need, whatever the graph's size.
// Threads: one at a time. Keeps its memory between batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/store/graph.h"

namespace permafrost::data {

class RowTable {
 public:
  // Forgets all, and makes room for `nodes` of them.
  void Clear(uint64_t nodes);
  // Room for `nodes` in all, kept ones included.
  void Reserve(uint64_t nodes);
  // Gives each of `found` its local row in `rows`, as large: the one it has, or the next. New nodes are appended to
  // `nodes`, which holds all of the table, by local row. Reserve comes first.
  void Relabel(std::span<const NodeId> found, std::vector<NodeId>& nodes, std::span<int64_t> rows);

 private:
  // Node in the upper half, local row in the lower.
  static constexpr uint64_t kFree = ~uint64_t{0};

  uint64_t SlotOf(NodeId node) const {
    // Source: the finaliser of MurmurHash3, one multiplication short, taken from the top.
    const uint64_t mixed = node * 0x9e3779b97f4a7c15u;
    return ((mixed ^ (mixed >> 32)) * 0xff51afd7ed558ccdu) >> shift_;
  }

  std::vector<uint64_t> slots_;
  uint64_t used_slots_ = 0;  // a power of two, and at most slots_.size()
  int shift_ = 63;
  uint64_t kept_ = 0;
};

}  // namespace permafrost::data
