// Reads the edges of nodes, and draws some of them at random. A draw depends only on its key, so that any thread can
// make any of them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/buffer.h"
#include "base/random.h"
#include "base/status.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

// The part that all samplers need to read an adjacency fast, and to say so where it is damaged.
// Threads: AdjacencyReads belongs to one thread at a time; several may read one adjacency.

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

// Random draws for sampling. Stateless: a draw depends only on its key, so that any thread can make any of them.
// Threads: pure functions.

// Uniform in 0..bound-1 from 64 random bits, by one multiplication (Lemire 2019, without the rejection): a number is
// drawn too often by at most a part of bound / 2^64.
inline uint64_t ScaleBits(uint64_t bits, uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
}

// Uniform in (0, 1), never either end.
inline double OpenUnit(uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

// The number of neighbours that a hop of sampling draws.
// Threads: pure functions.

// The most edges that a hop draws of one node with `degree` in-edges: all of them for kAllNeighbors; with replacement
// `fan_out`, however few there are to draw from; without, no more than there are. Drawing by weight may give fewer,
// since an edge of weight 0 is never drawn. fan_out: IsFanOut.
constexpr uint64_t MaxDrawn(uint64_t degree, int64_t fan_out, bool replace) {
  if (degree == 0 || fan_out == spec::kAllNeighbors) return degree;
  return replace ? static_cast<uint64_t>(fan_out) : std::min(degree, static_cast<uint64_t>(fan_out));
}

// Chooses which of one node's edges a hop takes. A draw depends only on the generator that it is given.
// Threads: one at a time (it keeps scratch memory).
class EdgeDraw {
 public:
  EdgeDraw(bool replace, bool weighted) : replace_(replace), weighted_(weighted) {}

  // A node of so many edges at most gives all of them, in their order, without a draw.
  uint64_t MostTakenWhole(int64_t fan_out) const;
  // Draws `fan_out` of the edges with a weight above 0, or all of them where there are no more. Each is as likely as
  // any other. They are drawn without replacement and in no order.
  int64_t DrawEvenly(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64 random,
                     std::span<uint64_t> places);
  // Writes the places of the edges drawn to `places` and returns their number, at most MaxDrawn. weights: of the edges
  // in `extent`, where it is weighted; an edge whose weight is 0 is never drawn, though all are asked for.
  int64_t Draw(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64 random,
               std::span<uint64_t> places);

 private:
  static int64_t TakeHeavy(Adjacency::Extent extent, const float* weights, std::span<uint64_t> places);
  int64_t DrawDistinct(Adjacency::Extent extent, int64_t fan_out, SplitMix64& random, std::span<uint64_t> places);
  int64_t DrawWeighted(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64& random,
                       std::span<uint64_t> places);
  int64_t DrawWeightedDistinct(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64& random,
                               std::span<uint64_t> places);

  const bool replace_, weighted_;
  std::vector<double> sums_;
  std::vector<uint64_t> chosen_, heavy_;
  std::vector<std::pair<double, uint64_t>> keys_;  // a heap, the least on top
};

// Temporal sampling: the times of seeds, and draws of edges before them.

// Before which time the seed nodes of a batch see edges.
// Threads: values; safe anywhere.
class SeedTimes {
 public:
  // The times of temporal sampling: `same` for all where it is given, else each node's own, which the graph may have.
  // Borrows the graph's columns.
  SeedTimes(spec::TemporalSampling temporal, std::optional<int64_t> same, const GraphView& graph)
      : same_(same), own_(temporal != spec::TemporalSampling::kNone && !same ? graph.times : Column<int64_t>()) {}

  // Replaces `times` by those of `nodes`, each below the graph's nodes; empty: every edge is before them. Errors:
  // DataLoss.
  absl::Status Of(std::span<const NodeId> nodes, std::vector<int64_t>& times) const;

 private:
  const std::optional<int64_t> same_;
  const Column<int64_t> own_;
};

// Chooses which of one node's edges a hop takes, of those before a time. A draw depends only on the generator that it
// is given. Threads: one at a time (it keeps scratch memory).
class TemporalDraw {
 public:
  // strategy: not kNone.
  TemporalDraw(spec::TemporalSampling strategy, bool replace)
      : strategy_(strategy), draw_(replace, /*weighted=*/false), replace_(replace) {}

  // Writes the places of the edges taken to `places` and returns their number, at most MaxDrawn of the extent.
  // timestamps: of the edges in `extent`. before: only edges with a timestamp below it are taken; nullopt: all may be.
  // kLast takes the `fan_out` latest, and of equally late ones those that stand later in the extent, in the extent's
  // order.
  int64_t Draw(Adjacency::Extent extent, const int64_t* timestamps, std::optional<int64_t> before, int64_t fan_out,
               SplitMix64 random, std::span<uint64_t> places);

 private:
  const spec::TemporalSampling strategy_;
  EdgeDraw draw_;
  const bool replace_;
  std::vector<uint64_t> earlier_;  // places in the extent
};

}  // namespace permafrost::data
