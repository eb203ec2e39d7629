// What all samplers need to read an adjacency fast, and to say so where it is damaged.
// Threads: AdjacencyReads belongs to one thread at a time; several may read one adjacency.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "data/store/graph.h"

namespace permafrost::data {

// What went wrong while threads read one adjacency.
struct ReadFaults {
  std::atomic<bool> damaged{false};       // a Touch said no
  std::atomic<bool> out_of_range{false};  // an id that is no row, though its block was good once: the file changed
};

// Ok, or DataLoss: what the columns say of their damage, or that an id was read that is no row.
absl::Status StatusOf(const ReadFaults& faults, const Adjacency& adjacency);

// Reads of one thread; what it finds wrong goes to `faults` at the end of its life, and zeros or empty lists are read
// in its place meanwhile.
class AdjacencyReads {
 public:
  // Neighbours whose block is verified whole when any is read: more of them are verified where they are read.
  static constexpr uint64_t kTouchedWhole = BlockGuard::kBlockBytes / sizeof(NodeId);

  AdjacencyReads(const Adjacency& adjacency, ReadFaults& faults)
      : adjacency_(adjacency), nodes_(adjacency.offsets.size() - 1), faults_(faults) {}
  AdjacencyReads(const AdjacencyReads&) = delete;
  AdjacencyReads& operator=(const AdjacencyReads&) = delete;
  ~AdjacencyReads() {
    if (!ok_) faults_.damaged = true;
    if (highest_ >= nodes_) faults_.out_of_range = true;
  }

  uint64_t nodes() const { return nodes_; }

  // node < nodes(). The line of the second offset is another one for every eighth node.
  void PrefetchExtent(NodeId node) const {
    __builtin_prefetch(adjacency_.offsets.data() + node);
    __builtin_prefetch(adjacency_.offsets.data() + node + 1);
  }
  Adjacency::Extent Of(NodeId node) { return adjacency_.Of(node, ok_); }

  // Whether neighbours [begin, end) may be read; false marks the damage.
  bool Touch(uint64_t begin, uint64_t end) {
    const bool touched = adjacency_.neighbors.Touch(begin, end);
    ok_ &= touched;
    return touched;
  }
  bool TouchWeights(Adjacency::Extent extent) {
    const bool touched = adjacency_.weights.Touch(extent.begin, extent.end);
    ok_ &= touched;
    return touched;
  }
  bool TouchTimestamps(Adjacency::Extent extent) {
    const bool touched = adjacency_.timestamps.Touch(extent.begin, extent.end);
    ok_ &= touched;
    return touched;
  }
  void PrefetchNeighbor(uint64_t place) const { __builtin_prefetch(adjacency_.neighbors.data() + place); }
  // All of a short list.
  void PrefetchNeighbors(Adjacency::Extent extent) const {
    for (uint64_t place = extent.begin; place < extent.end; place += kNeighborsInLine) PrefetchNeighbor(place);
    PrefetchNeighbor(extent.end - 1);
  }
  // A touched neighbour as it stands, which may be no row: for results only, never an index.
  NodeId Neighbor(uint64_t place) {
    const NodeId node = adjacency_.neighbors[place];
    highest_ = node > highest_ ? node : highest_;
    return node;
  }
  // A touched neighbour that is a row whatever the file says: `otherwise` in place of one that is none.
  NodeId Row(uint64_t place, NodeId otherwise) {
    const NodeId node = Neighbor(place);
    return node < nodes_ ? node : otherwise;
  }

 private:
  static constexpr uint64_t kNeighborsInLine = 64 / sizeof(NodeId);

  const Adjacency& adjacency_;
  const uint64_t nodes_;
  ReadFaults& faults_;
  bool ok_ = true;
  NodeId highest_ = 0;
};

}  // namespace permafrost::data
