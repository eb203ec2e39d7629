// Maps the nodes that a sample has found so far to their local rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/buffer.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Maps the nodes found so far to their local rows. For a graph of few nodes it is a table of all nodes. Otherwise it
// is an open-addressing hash table, as large as the found nodes need, whatever the graph's size.
// Threads: one at a time. Memory: kept between batches.
class RowTable {
 public:
  // A graph of at most this many nodes has a table of all nodes. It takes at most 16 MiB, about the size of a
  // processor's cache.
  static constexpr uint64_t kDirectNodes = uint64_t{1} << 22;

  // Every node is below `graph_nodes`, which is <= kMaxNodes. `first` >= 1 is the number that the table stores for
  // row 0. Tests pass a number near the largest one.
  explicit RowTable(uint64_t graph_nodes, uint32_t first = 1) : graph_nodes_(graph_nodes), first_(first) {}

  // Forgets all nodes.
  void Clear();
  // Returns the number of nodes that have a row.
  uint64_t size() const { return kept_; }
  // Writes the local row of each node found[i] to rows[i]. A new node gets the next free row. Afterwards nodes[row]
  // is the node of `row`, for every row below size(). The caller leaves the entries of earlier calls in `nodes`.
  // `nodes` grows if it is too small, and never shrinks.
  void Relabel(std::span<const NodeId> found, std::vector<NodeId>& nodes, std::span<int64_t> rows);
  // Like Relabel, but gives no new rows once size() is `most`. Nodes without a row get kNoRow in `rows`.
  void RelabelWithin(uint64_t most, std::span<const NodeId> found, std::vector<NodeId>& nodes, std::span<int64_t> rows);
  static constexpr int64_t kNoRow = -1;

 private:
  // A row is stored as first_ + row. A number below first_ is left from an earlier batch, so its slot is free.
  struct Slot {
    NodeId node = 0;
    uint32_t row = 0;
  };
  bool direct() const { return graph_nodes_ <= kDirectNodes; }
  size_t SlotOf(NodeId node) const {
    // Uses the top bits of the hash. Source: the finaliser of MurmurHash3, without one of its multiplications.
    const uint64_t mixed = node * 0x9e3779b97f4a7c15u;
    return static_cast<size_t>(((mixed ^ (mixed >> 32)) * 0xff51afd7ed558ccdu) >> shift_);
  }
  // Makes room for `rows` rows in total. If slots move or numbers run out, inserts all of `nodes` anew.
  void Reserve(uint64_t rows, std::span<const NodeId> nodes);
  void RelabelDirect(std::span<const NodeId> found, NodeId* nodes, int64_t* rows);
  void RelabelHashed(std::span<const NodeId> found, NodeId* nodes, int64_t* rows);

  const uint64_t graph_nodes_;
  // Large tables lie in huge pages if the system has them, because a look-up reads anywhere in the table.
  AlignedVector<uint32_t> direct_;  // [graph_nodes], or empty
  AlignedVector<Slot> slots_;       // the size is a power of two, or 0
  int shift_ = 63;
  uint64_t first_;
  uint64_t kept_ = 0;
};

// Maps pairs of a seed and a node to local rows, for samples in which each seed has a subgraph of its own. Threads:
// one at a time. Memory: kept between batches.
class DisjointRows {
 public:
  // Forgets all pairs.
  void Clear();
  // Returns the number of pairs that have a row.
  uint64_t size() const { return kept_; }
  // Writes the local row of each pair (owners[i], found[i]) to rows[i]. A new pair gets the next free row and is
  // appended to `nodes` and `node_owners`, both of which have size() entries.
  void Relabel(std::span<const NodeId> found, std::span<const uint32_t> owners, std::vector<NodeId>& nodes,
               std::vector<uint32_t>& node_owners, std::span<int64_t> rows);
  // Like Relabel, but gives no new rows once size() is `most`. Pairs without a row get RowTable::kNoRow in `rows`.
  void RelabelWithin(uint64_t most, std::span<const NodeId> found, std::span<const uint32_t> owners,
                     std::vector<NodeId>& nodes, std::vector<uint32_t>& node_owners, std::span<int64_t> rows);

 private:
  struct Slot {
    uint64_t pair = 0;
    uint64_t row = 0;  // a number below first_ is left from an earlier batch
  };
  static uint64_t PairOf(uint32_t owner, NodeId node) { return uint64_t{owner} << 32 | node; }
  size_t SlotOf(uint64_t pair) const;
  // Returns the slot that holds a pair, or the free slot that will hold it.
  size_t Find(uint64_t pair) const;
  void Reserve(uint64_t rows, std::span<const NodeId> nodes, std::span<const uint32_t> node_owners);

  std::vector<Slot> slots_;  // open addressing; the size is a power of two, or 0
  int shift_ = 63;
  // A row is stored as first_ + row, so a slot with a number below first_ is free.
  uint64_t first_ = 1;
  uint64_t kept_ = 0;
};

}  // namespace permafrost::data
