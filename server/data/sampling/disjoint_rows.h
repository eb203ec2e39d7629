// Local rows of the nodes found so far where each seed has a subgraph of its own: of pairs of a seed and a node.
// Threads: one at a time. Keeps its memory between batches.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/store/graph.h"

namespace permafrost::data {

class DisjointRows {
 public:
  // Forgets all.
  void Clear();
  // The number of pairs that have a row.
  uint64_t size() const { return kept_; }
  // Gives each pair (owners[i], found[i]) its local row in `rows`: the one it has, or the next. New pairs are appended
  // to `nodes` and `node_owners`, both of which have size() entries.
  void Relabel(std::span<const NodeId> found, std::span<const uint32_t> owners, std::vector<NodeId>& nodes,
               std::vector<uint32_t>& node_owners, std::span<int64_t> rows);
  // The same, but no pair gets a new row once size() is `most`: RowTable::kNoRow stands in `rows` for one that has
  // none.
  void RelabelWithin(uint64_t most, std::span<const NodeId> found, std::span<const uint32_t> owners,
                     std::vector<NodeId>& nodes, std::vector<uint32_t>& node_owners, std::span<int64_t> rows);

 private:
  struct Slot {
    uint64_t pair = 0;
    uint64_t row = 0;  // of a batch before, where it is below first_
  };
  static uint64_t PairOf(uint32_t owner, NodeId node) { return uint64_t{owner} << 32 | node; }
  size_t SlotOf(uint64_t pair) const;
  // Returns the slot where a pair stands, or the free slot where it will.
  size_t Find(uint64_t pair) const;
  void Reserve(uint64_t rows, std::span<const NodeId> nodes, std::span<const uint32_t> node_owners);

  std::vector<Slot> slots_;  // a power of two of them, or none; open addressing
  int shift_ = 63;
  // A row is written as first_ + row, so that what lies below is free.
  uint64_t first_ = 1;
  uint64_t kept_ = 0;
};

}  // namespace permafrost::data
