// The part that all samplers need to read an adjacency fast, and to say so where it is damaged.
// Threads: AdjacencyReads belongs to one thread at a time; several may read one adjacency.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "base/buffer.h"
#include "base/status.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Returns whether none of `nodes` is greater than `most`.
inline bool AllAtMost(std::span<const NodeId> nodes, NodeId most) {
  // Compared as signed numbers, which all processors do several at a time.
  constexpr NodeId kSign = NodeId{1} << 31;
  const auto last = static_cast<int32_t>(most ^ kSign);
  const NodeId* const values = nodes.data();
  const size_t count = nodes.size();
  int32_t others = 0;
#pragma omp simd reduction(| : others)
  for (size_t i = 0; i < count; ++i) others |= static_cast<int32_t>(values[i] ^ kSign) > last ? 1 : 0;
  return others == 0;
}

// The faults met while threads read one adjacency.
struct ReadFaults {
  std::atomic<bool> damaged{false};       // a Touch said no
  std::atomic<bool> out_of_range{false};  // an id that is no row, though its block was good once: the file changed
};

// Ok, or DataLoss: what the columns say of their damage, or that an id was read that is no row.
inline absl::Status StatusOf(const ReadFaults& faults, const Adjacency& adjacency) {
  if (faults.damaged) {
    PF_RETURN_IF_ERROR(adjacency.offsets.status());
    PF_RETURN_IF_ERROR(adjacency.neighbors.status());
    PF_RETURN_IF_ERROR(adjacency.weights.status());
    return absl::DataLossError("the graph's edges: a block that is damaged was read");
  }
  if (faults.out_of_range) {
    return absl::DataLossError(
        "the graph's edges: a neighbour was read that is no node: the file changed while in use");
  }
  return absl::OkStatus();
}

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
    if (out_of_range_) faults_.out_of_range = true;
  }

  uint64_t nodes() const { return nodes_; }

  // node < nodes(). The line of the second offset is another one for every eighth node.
  void PrefetchExtent(NodeId node) const {
    PrefetchLine(adjacency_.offsets.data() + node);
    PrefetchLine(adjacency_.offsets.data() + node + 1);
  }
  Adjacency::Extent Of(NodeId node) { return adjacency_.Of(node, ok_); }

  // Returns whether neighbours [begin, end) may be read; false marks the damage.
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
  void PrefetchNeighbor(uint64_t place) const { PrefetchLine(adjacency_.neighbors.data() + place); }
  // Prefetches the whole of a short list.
  void PrefetchNeighbors(Adjacency::Extent extent) const {
    PrefetchLines(adjacency_.neighbors.data() + extent.begin, extent.size() * sizeof(NodeId));
    PrefetchNeighbor(extent.end - 1);
  }
  // A touched neighbour as it stands, which may be no row: for results only, never an index.
  NodeId Neighbor(uint64_t place) {
    const NodeId node = adjacency_.neighbors[place];
    out_of_range_ |= node >= nodes_;
    return node;
  }
  // Returns whether all of `neighbors`, as they were read, are rows; false marks the damage. nodes() >= 1.
  bool AreRows(std::span<const NodeId> neighbors) {
    const bool are_rows = AllAtMost(neighbors, static_cast<NodeId>(nodes_ - 1));
    out_of_range_ |= !are_rows;
    return are_rows;
  }
  // A touched neighbour that is a row whatever the file says: `otherwise` in place of one that is none.
  NodeId Row(uint64_t place, NodeId otherwise) {
    const NodeId node = Neighbor(place);
    return node < nodes_ ? node : otherwise;
  }

 private:
  const Adjacency& adjacency_;
  const uint64_t nodes_;
  ReadFaults& faults_;
  bool ok_ = true;
  bool out_of_range_ = false;
};

}  // namespace permafrost::data
