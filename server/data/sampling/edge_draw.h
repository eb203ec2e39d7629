// Reads the edges of nodes and draws some of these edges at random. A draw depends only on its key, so any thread can
// make it.
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

// Helpers with which all samplers read an adjacency fast and report damage.
// Threads: an AdjacencyReads belongs to one thread at a time. Several threads may read one adjacency, each with its
// own AdjacencyReads.

// Returns whether none of `nodes` is greater than `most`.
inline bool AllAtMost(std::span<const NodeId> nodes, NodeId most) {
  // Compares as signed numbers, because every processor has vector instructions for signed comparisons.
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
  std::atomic<bool> damaged{false};       // a Touch returned false
  std::atomic<bool> out_of_range{false};  // an id was not a row although its block was verified: the file has changed
};

// Returns Ok if there was no fault. Otherwise returns DataLoss, which names the damage that the columns report, or says
// that an id was read that is not a row.
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

// Reads an adjacency on behalf of one thread. In place of damaged data, its methods return zeros or empty lists. The
// destructor reports the damage to `faults`.
class AdjacencyReads {
 public:
  // If a node has at most this many neighbours, all of them are verified when one of them is read. Of a longer list,
  // only the neighbours that are read are verified.
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

  // Prefetches the two offsets that bound a node's edges; node < nodes(). For one node in eight, the offsets lie in
  // two cache lines.
  void PrefetchExtent(NodeId node) const {
    PrefetchLine(adjacency_.offsets.data() + node);
    PrefetchLine(adjacency_.offsets.data() + node + 1);
  }
  Adjacency::Extent Of(NodeId node) { return adjacency_.Of(node, ok_); }

  // Returns whether neighbours [begin, end) may be read. If not, records the damage.
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
  // Prefetches all neighbours of a short list.
  void PrefetchNeighbors(Adjacency::Extent extent) const {
    PrefetchLines(adjacency_.neighbors.data() + extent.begin, extent.size() * sizeof(NodeId));
    PrefetchNeighbor(extent.end - 1);
  }
  // Returns a touched neighbour as stored. Never use the value as an index, since it need not be a row of the graph.
  NodeId Neighbor(uint64_t place) {
    const NodeId node = adjacency_.neighbors[place];
    out_of_range_ |= node >= nodes_;
    return node;
  }
  // Returns whether all of `neighbors`, which the caller has read, are rows. If not, records the fault. nodes() must
  // be >= 1.
  bool AreRows(std::span<const NodeId> neighbors) {
    const bool are_rows = AllAtMost(neighbors, static_cast<NodeId>(nodes_ - 1));
    out_of_range_ |= !are_rows;
    return are_rows;
  }
  // Returns a touched neighbour, or `otherwise` if it is not a row. The result may serve as an index.
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

// Random draws for sampling. They are stateless: a draw depends only on its key, so any thread can make it.
// Threads: pure functions.

// Maps 64 random bits to a uniform number in 0..bound-1 by one multiplication (Lemire 2019, without the rejection). The
// relative bias of each number is at most bound / 2^64.
inline uint64_t ScaleBits(uint64_t bits, uint64_t bound) {
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>((static_cast<Wide>(bits) * bound) >> 64);
}

// Maps 64 random bits to a uniform number in the open interval (0, 1).
inline double OpenUnit(uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

// The number of neighbours that a hop of sampling draws.
// Threads: pure functions.

// Returns the most edges that a hop draws for one node with `degree` in-edges. For kAllNeighbors, this is `degree`.
// With replacement, it is `fan_out` even if `degree` is smaller, but 0 if `degree` is 0. Without replacement, it is
// the smaller of `degree` and `fan_out`. A draw by weight may give fewer edges, since edges of weight 0 are never
// drawn. `fan_out` satisfies IsFanOut.
constexpr uint64_t MaxDrawn(uint64_t degree, int64_t fan_out, bool replace) {
  if (degree == 0 || fan_out == spec::kAllNeighbors) return degree;
  return replace ? static_cast<uint64_t>(fan_out) : std::min(degree, static_cast<uint64_t>(fan_out));
}

// Chooses which edges of one node a hop takes. A draw depends only on the generator that it is given. Threads: one at
// a time, since it keeps scratch memory.
class EdgeDraw {
 public:
  EdgeDraw(bool replace, bool weighted) : replace_(replace), weighted_(weighted) {}

  // Returns a limit: if a node has at most this many edges, a hop takes all of them, in their order and without a
  // draw.
  uint64_t MostTakenWhole(int64_t fan_out) const;
  // Draws `fan_out` distinct edges, all equally likely, among the edges with a weight above 0. If there are fewer of
  // these edges, takes all of them. The result is in no particular order.
  int64_t DrawEvenly(Adjacency::Extent extent, const float* weights, int64_t fan_out, SplitMix64 random,
                     std::span<uint64_t> places);
  // Writes the places of the drawn edges to `places` and returns their number, at most MaxDrawn. If the draw is
  // weighted, `weights` holds the weights of the edges in `extent`. An edge of weight 0 is never drawn, even for
  // kAllNeighbors.
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
  std::vector<std::pair<double, uint64_t>> keys_;  // a min-heap
};

// Temporal sampling: the times of seeds, and draws of edges before these times.

// Gives the time of each seed node: a seed sees only edges before its time.
// Threads: values; safe anywhere.
class SeedTimes {
 public:
  // If `same` is given, it is the time of every node. Otherwise a node's time is its time in the graph, if the graph
  // stores times. Borrows the graph's columns.
  SeedTimes(spec::TemporalSampling temporal, std::optional<int64_t> same, const GraphView& graph)
      : same_(same), own_(temporal != spec::TemporalSampling::kNone && !same ? graph.times : Column<int64_t>()) {}

  // Replaces `times` with the times of `nodes`, each of which must be a row of the graph. If `times` is then empty,
  // seeds have no times and see every edge. Errors: DataLoss.
  absl::Status Of(std::span<const NodeId> nodes, std::vector<int64_t>& times) const;

 private:
  const std::optional<int64_t> same_;
  const Column<int64_t> own_;
};

// Chooses which edges of one node a hop takes, among the edges before a given time. A draw depends only on the
// generator that it is given.
// Threads: one at a time, since it keeps scratch memory.
class TemporalDraw {
 public:
  // `strategy` is not kNone.
  TemporalDraw(spec::TemporalSampling strategy, bool replace)
      : strategy_(strategy), draw_(replace, /*weighted=*/false), replace_(replace) {}

  // Writes the places of the chosen edges to `places` and returns their number, at most MaxDrawn. `timestamps` holds
  // the timestamps of the edges in `extent`. Only edges with a timestamp below `before` are taken; nullopt allows all
  // edges. kLast takes the `fan_out` latest edges and writes them in the order of the extent. Of edges with equal
  // timestamps, it prefers the edges later in the extent.
  int64_t Draw(Adjacency::Extent extent, const int64_t* timestamps, std::optional<int64_t> before, int64_t fan_out,
               SplitMix64 random, std::span<uint64_t> places);

 private:
  const spec::TemporalSampling strategy_;
  EdgeDraw draw_;
  const bool replace_;
  std::vector<uint64_t> earlier_;  // offsets from the extent's begin
};

}  // namespace permafrost::data
