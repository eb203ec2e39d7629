// SampleFanOut: one hop, as fast as the memory answers.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/parallel.h"
#include "data/sampling/adjacency_reads.h"
#include "data/sampling/draw.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

// Nodes ahead of the one read whose neighbours, and whose offsets, are asked for. More at once are slower: they wait
// for the few misses that a core can have open.
constexpr size_t kDrawsAhead = 8, kOffsetsAhead = 16, kSlots = 16;
// Nodes of one piece at most: it is gone through in the order of rows, so that what lies side by side is read so, and
// its results still fit the second cache.
constexpr int64_t kPiece = 65536, kLeastPiece = 512;
constexpr int kDigitBits = 11;

// A node and its place in the piece.
struct Target {
  NodeId node;
  uint32_t place;
};

// Sorts by node, digit by digit.
void SortByNode(std::vector<Target>& targets, std::vector<Target>& room, uint64_t nodes) {
  const auto before = [](const Target& a, const Target& b) { return a.node < b.node; };
  if (std::is_sorted(targets.begin(), targets.end(), before)) return;
  room.resize(targets.size());
  for (int shift = 0; nodes >> shift != 0; shift += kDigitBits) {
    constexpr NodeId kMask = (NodeId{1} << kDigitBits) - 1;
    std::array<uint32_t, kMask + 1> ends{};
    for (const Target& target : targets) ++ends[(target.node >> shift) & kMask];
    uint32_t sum = 0;
    for (uint32_t& end : ends) sum += std::exchange(end, sum);
    for (const Target& target : targets) room[ends[(target.node >> shift) & kMask]++] = target;
    std::swap(targets, room);
  }
}

// What one thread samples with.
class Piece {
 public:
  Piece(const Adjacency& adjacency, ReadFaults& faults, int64_t fan_out, uint64_t seed)
      : reads_(adjacency, faults), fan_out_(fan_out), seed_(seed), places_(kSlots * static_cast<size_t>(fan_out)) {}

  // The draws of nodes [begin, end).
  void Sample(std::span<const NodeId> nodes, int64_t begin, int64_t end, std::span<NodeId> out) {
    targets_.resize(static_cast<size_t>(end - begin));
    for (uint32_t i = 0; i < targets_.size(); ++i) targets_[i] = {nodes[static_cast<size_t>(begin) + i], i};
    SortByNode(targets_, room_, reads_.nodes());
    // While one node's neighbours are read, those of the next few are on their way, and the offsets of more.
    const size_t count = targets_.size();
    for (size_t t = 0; t < std::min(kOffsetsAhead, count); ++t) reads_.PrefetchExtent(targets_[t].node);
    for (size_t t = 0; t < count + kDrawsAhead; ++t) {
      if (t + kOffsetsAhead < count) reads_.PrefetchExtent(targets_[t + kOffsetsAhead].node);
      if (t < count) Draw(targets_[t], begin, t % kSlots);
      if (t >= kDrawsAhead) Read(targets_[t - kDrawsAhead], begin, (t - kDrawsAhead) % kSlots, out);
    }
  }

 private:
  // The places of a node's draws into a slot, asked for.
  void Draw(const Target& target, int64_t begin, size_t slot) {
    drawn_[slot] = false;
    const Adjacency::Extent extent = reads_.Of(target.node);
    if (extent.size() == 0) return;
    const bool whole = extent.size() <= AdjacencyReads::kTouchedWhole;
    if (whole && !reads_.Touch(extent.begin, extent.end)) return;
    uint64_t* place = places_.data() + slot * static_cast<size_t>(fan_out_);
    SplitMix64 random(seed_, static_cast<uint64_t>(begin) + target.place);
    bool touched = true;
    if (whole && extent.size() <= static_cast<uint64_t>(fan_out_)) {
      reads_.PrefetchNeighbors(extent);
      DrawBelow(random, extent.size(), fan_out_, [&](uint64_t draw) { *place++ = extent.begin + draw; });
    } else {
      DrawBelow(random, extent.size(), fan_out_, [&](uint64_t draw) {
        *place = extent.begin + draw;
        reads_.PrefetchNeighbor(*place);
        if (!whole) touched &= reads_.Touch(*place, *place + 1);
        ++place;
      });
    }
    drawn_[slot] = touched;
  }

  void Read(const Target& target, int64_t begin, size_t slot, std::span<NodeId> out) {
    const uint64_t* place = places_.data() + slot * static_cast<size_t>(fan_out_);
    NodeId* to = out.data() + (begin + target.place) * fan_out_;
    if (!drawn_[slot]) {
      std::fill_n(to, fan_out_, target.node);
      return;
    }
    for (int64_t j = 0; j < fan_out_; ++j) to[j] = reads_.Neighbor(place[j]);
  }

  AdjacencyReads reads_;
  const int64_t fan_out_;
  const uint64_t seed_;
  std::vector<uint64_t> places_;  // [kSlots, fan_out]
  std::array<bool, kSlots> drawn_{};
  std::vector<Target> targets_, room_;
};

}  // namespace

absl::Status SampleFanOut(const Adjacency& adjacency, std::span<const NodeId> nodes, int64_t fan_out, uint64_t seed,
                          int threads, std::span<NodeId> out) {
  if (!adjacency.present()) return absl::InvalidArgumentError("the graph keeps no edges in this direction");
  if (fan_out < 1 || fan_out > 65536) {
    return absl::InvalidArgumentError(absl::StrCat("fan_out: ", fan_out, " is outside 1..65536"));
  }
  if (out.size() / static_cast<uint64_t>(fan_out) != nodes.size() || out.size() % static_cast<uint64_t>(fan_out) != 0) {
    return absl::InvalidArgumentError(absl::StrCat("out: room for ", out.size(), " neighbours; ", nodes.size(),
                                                   " nodes times ", fan_out, " need just so many"));
  }
  const uint64_t rows = adjacency.offsets.size() - 1;
  for (const NodeId node : nodes) {
    if (node >= rows)
      return absl::InvalidArgumentError(absl::StrCat("nodes: ", node, " is none of the graph's ", rows, " rows"));
  }
  ReadFaults faults;
  const auto count = static_cast<int64_t>(nodes.size());
  const int64_t piece = std::clamp(count / std::max(4 * threads, 1), kLeastPiece, kPiece);
  {
    std::vector<std::unique_ptr<Piece>> workers(static_cast<size_t>(std::max(threads, 1)));
    ParallelFor(threads, count, piece, [&](int64_t begin, int64_t end, int w) {
      std::unique_ptr<Piece>& worker = workers[static_cast<size_t>(w)];
      if (worker == nullptr) worker = std::make_unique<Piece>(adjacency, faults, fan_out, seed);
      worker->Sample(nodes, begin, end, out);
    });
    // Their end tells of faults.
  }
  return StatusOf(faults, adjacency);
}

}  // namespace permafrost::data
