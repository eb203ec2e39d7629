// Keeps the local rows of the nodes that a sample has found so far.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Keeps the local rows of the nodes found so far. For a graph whose nodes are few it is a table of all of them; else an
// open-addressing table as large as the found ones need, whatever the graph's size.
// Threads: one at a time. Keeps its memory between batches.
class RowTable {
 public:
  // Nodes up to which a table of all is kept: 16 MiB, about what stays in a cache.
  static constexpr uint64_t kDirectNodes = uint64_t{1} << 22;

  // `graph_nodes`: every node is below; <= kMaxNodes. `first`: what the first row is written as, >= 1; tests begin near
  // the end of the numbers.
  explicit RowTable(uint64_t graph_nodes, uint32_t first = 1) : graph_nodes_(graph_nodes), first_(first) {}

  // Forgets all.
  void Clear();
  // The number of nodes that have a row.
  uint64_t size() const { return kept_; }
  // Gives each of `found` its local row in `rows`, as large: the one it has, or the next. nodes[row] is then the node
  // of each row below size(), as it was of those before; `nodes` grows where it is too small, and is never made
  // smaller.
  void Relabel(std::span<const NodeId> found, std::vector<NodeId>& nodes, std::span<int64_t> rows);
  // The same, but no node gets a new row once size() is `most`: kNoRow stands in `rows` for one that has none.
  void RelabelWithin(uint64_t most, std::span<const NodeId> found, std::vector<NodeId>& nodes, std::span<int64_t> rows);
  static constexpr int64_t kNoRow = -1;

 private:
  // A row is written as first_ + row, so that everything below first_ is of a batch before: free.
  struct Slot {
    NodeId node = 0;
    uint32_t row = 0;
  };
  bool direct() const { return graph_nodes_ <= kDirectNodes; }
  size_t SlotOf(NodeId node) const {
    // Source: the finaliser of MurmurHash3, one multiplication short, taken from the top.
    const uint64_t mixed = node * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(((mixed ^ (mixed >> 32)) * 0xff51afd7ed558ccdu) >> shift_);
  }
  // Room for `rows` in all. Writes those of `nodes` anew where slots move or numbers are used up.
  void Reserve(uint64_t rows, std::span<const NodeId> nodes);
  void RelabelDirect(std::span<const NodeId> found, NodeId* nodes, int64_t* rows);
  void RelabelHashed(std::span<const NodeId> found, NodeId* nodes, int64_t* rows);

  const uint64_t graph_nodes_;
  // Large ones are of huge pages, where there are: a look-up reads anywhere in them.
  AlignedVector<uint32_t> direct_;  // [graph_nodes], or empty
  AlignedVector<Slot> slots_;       // a power of two of them, or none
  int shift_ = 63;
  uint64_t first_;
  uint64_t kept_ = 0;
};

// Gives local rows to pairs of a seed and a node, for samples in which each seed has a subgraph of its own. Threads:
// one at a time. Keeps its memory between batches.
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
