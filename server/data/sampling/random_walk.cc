#include "data/sampling/random_walk.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/parallel.h"
#include "base/status.h"
#include "data/sampling/edge_draw.h"
#include "spec/checks.h"

namespace permafrost::data {
namespace {

// The number of uniform walks that one thread interleaves, so that their memory reads overlap.
constexpr int64_t kWalkLanes = 64;
constexpr int64_t kWalksInPiece = 512;

// Makes walks [begin, end) together, step by step; end - begin <= kWalkLanes. While one walk waits for its neighbour,
// the other walks draw.
void WalkTogether(AdjacencyReads& reads, std::span<const NodeId> starts, int64_t begin, int64_t end, int64_t length,
                  uint64_t seed, std::span<NodeId> out) {
  constexpr uint64_t kStays = ~uint64_t{0};
  struct WalkLane {
    SplitMix64 random{0, 0};
    uint64_t place = 0;
    NodeId node = 0;
  };
  std::array<WalkLane, kWalkLanes> lanes;
  const auto count = static_cast<size_t>(end - begin);
  NodeId* const rows = out.data() + begin * length;
  for (size_t l = 0; l < count; ++l) {
    const auto walk = static_cast<uint64_t>(begin) + l;
    lanes[l] = {.random = SplitMix64(seed, walk), .node = starts[walk]};
    rows[l * static_cast<size_t>(length)] = starts[walk];
    reads.PrefetchExtent(starts[walk]);
  }
  for (int64_t step = 1; step < length; ++step) {
    for (size_t l = 0; l < count; ++l) {
      WalkLane& lane = lanes[l];
      const Adjacency::Extent extent = reads.Of(lane.node);
      lane.place = extent.begin + ScaleBits(lane.random.Next(), extent.size());
      if (extent.size() == 0 || !reads.Touch(lane.place, lane.place + 1)) {
        lane.place = kStays;
      } else {
        reads.PrefetchNeighbor(lane.place);
      }
    }
    for (size_t l = 0; l < count; ++l) {
      WalkLane& lane = lanes[l];
      if (lane.place != kStays) lane.node = reads.Row(lane.place, lane.node);
      reads.PrefetchExtent(lane.node);
      rows[l * static_cast<size_t>(length) + static_cast<size_t>(step)] = lane.node;
    }
  }
}

absl::Status Check(const GraphView& view, std::span<const NodeId> starts, const WalkOptions& options,
                   std::span<NodeId> out) {
  Violations violations;
  if (!view.out.present()) {
    violations.Add("walks", "the graph keeps no out-edges; import it with keep_out_edges");
  }
  spec::FieldChecker check("", violations);
  spec::RowCheck(check, nullptr).Visit(options, options);
  for (const NodeId start : starts) {
    if (start < view.nodes) continue;
    violations.Add("starts", absl::StrCat(start, " is none of the graph's ", view.nodes, " rows"));
    break;
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  const auto length = static_cast<uint64_t>(options.length);
  if (out.size() / length != starts.size() || out.size() % length != 0) {
    return absl::InvalidArgumentError(absl::StrCat("out: room for ", out.size(), " nodes; ", starts.size(),
                                                   " walks of ", options.length, " need just so many"));
  }
  return absl::OkStatus();
}

// The number of Node2Vec walks that one thread interleaves, so that their memory reads overlap.
constexpr size_t kLanes = 64;
// After this many refused candidates, a step is drawn from the exact weights. Otherwise a step could take very long
// for some p and q. Candidates are independent, so the step's distribution stays the same.
constexpr int kMaxTries = 32;
// The upper bound of 1/p and 1/q. It keeps sums over all neighbours finite.
constexpr double kMaxWeight = 1e200;

using Extent = Adjacency::Extent;

struct Lane {
  SplitMix64 random{0, 0};
  int64_t walk = 0;
  int64_t step = 0;  // nodes of the walk so far
  NodeId node = 0, before = 0;
  Extent extent, before_extent;  // the neighbours of `node` and of `before`
  bool has_before = false;
  bool arrived = false;  // the walk has just come to `node`, so `extent` is not read yet
  int tries = 0;
  uint64_t place = 0;    // the candidate's place among the graph's edges
  NodeId candidate = 0;  // for the next step
  double draw = 0;       // the number that the candidate's weight must exceed
};

class Walker {
 public:
  Walker(AdjacencyReads& reads, std::span<const NodeId> starts, int64_t begin, int64_t end, const WalkOptions& options,
         std::span<NodeId> out)
      : reads_(reads),
        starts_(starts),
        next_(begin),
        end_(end),
        options_(options),
        back_(std::min(1 / options.p, kMaxWeight)),
        far_(std::min(1 / options.q, kMaxWeight)),
        most_(std::max({back_, far_, 1.0})),
        out_(out) {}

  void Run() {
    for (Lane& lane : lanes_) {
      if (!Start(lane)) break;
      ++active_;
    }
    while (active_ > 0) {
      for (size_t l = 0; l < active_;) {
        if (Draw(lanes_[l])) {
          ++l;
        } else if (!Start(lanes_[l])) {
          lanes_[l] = lanes_[--active_];
        }
      }
      searches_.clear();
      for (size_t l = 0; l < active_; ++l) Look(lanes_[l]);
      SearchTogether();
      for (size_t l = 0; l < active_;) {
        if (lanes_[l].step < options_.length || Start(lanes_[l])) {
          ++l;
        } else {
          lanes_[l] = lanes_[--active_];
        }
      }
    }
  }

 private:
  // Begins the next walk in `lane`. Returns false if there are no more walks.
  bool Start(Lane& lane) {
    for (; next_ < end_; ++next_) {
      const NodeId start = starts_[static_cast<size_t>(next_)];
      out_[static_cast<size_t>(next_ * options_.length)] = start;
      if (options_.length == 1) continue;
      lane = {.random = SplitMix64(options_.seed, static_cast<uint64_t>(next_)),
              .walk = next_,
              .step = 1,
              .node = start,
              .arrived = true};
      reads_.PrefetchExtent(start);
      ++next_;
      return true;
    }
    return false;
  }

  // Draws and prefetches the next candidate. If the walk cannot go on, fills the rest of the walk and returns false.
  bool Draw(Lane& lane) {
    if (lane.arrived) {
      lane.extent = reads_.Of(lane.node);
      lane.arrived = false;
      lane.tries = 0;
    }
    lane.place = lane.extent.begin + ScaleBits(lane.random.Next(), lane.extent.size());
    lane.draw = OpenUnit(lane.random.Next()) * most_;
    if (lane.extent.size() == 0 || !reads_.Touch(lane.place, lane.place + 1)) {
      NodeId* const row = out_.data() + lane.walk * options_.length;
      std::fill(row + lane.step, row + options_.length, lane.node);
      return false;
    }
    reads_.PrefetchNeighbor(lane.place);
    return true;
  }

  void Look(Lane& lane) {
    lane.candidate = reads_.Row(lane.place, lane.node);
    if (!lane.has_before) return Move(lane);
    if (lane.candidate == lane.before) return lane.draw < back_ ? Move(lane) : Refuse(lane);
    if (lane.draw < std::min(far_, 1.0)) return Move(lane);
    if (lane.draw >= std::max(far_, 1.0)) return Refuse(lane);
    if (!reads_.Touch(lane.before_extent.begin, lane.before_extent.end)) return Refuse(lane);
    searches_.push_back({&lane, lane.before_extent.begin, lane.before_extent.size()});
  }

  // Accepts or refuses all pending candidates. A bisection searches for each candidate among the neighbours of its
  // walk's previous node. The bisections take turns, one probe at a time.
  void SearchTogether() {
    for (bool searching = true; searching;) {
      searching = false;
      for (Search& search : searches_) {
        if (search.size <= 1) continue;
        const uint64_t half = search.size / 2;
        if (reads_.Neighbor(search.first + half - 1) < search.lane->candidate) search.first += half;
        search.size -= half;
        if (search.size <= 1) continue;
        searching = true;
        reads_.PrefetchNeighbor(search.first + search.size / 2 - 1);
      }
    }
    for (const Search& search : searches_) {
      Lane& lane = *search.lane;
      const bool near = search.size == 1 && reads_.Neighbor(search.first) == lane.candidate;
      if (lane.draw < (near ? 1.0 : far_)) {
        Move(lane);
      } else {
        Refuse(lane);
      }
    }
  }

  void Move(Lane& lane) {
    out_[static_cast<size_t>(lane.walk * options_.length + lane.step)] = lane.candidate;
    ++lane.step;
    lane.before = lane.node;
    lane.before_extent = lane.extent;
    lane.has_before = true;
    lane.node = lane.candidate;
    lane.arrived = true;
    reads_.PrefetchExtent(lane.node);
  }

  void Refuse(Lane& lane) {
    if (++lane.tries == kMaxTries) ChooseByWeights(lane);
  }

  // Draws one step from the exact weights of all neighbours.
  void ChooseByWeights(Lane& lane) {
    const Extent near = lane.before_extent;
    if (!reads_.Touch(lane.extent.begin, lane.extent.end) || !reads_.Touch(near.begin, near.end)) return Move(lane);
    sums_.clear();
    double sum = 0;
    uint64_t n = near.begin;
    for (uint64_t place = lane.extent.begin; place < lane.extent.end; ++place) {
      const NodeId node = reads_.Neighbor(place);
      while (n < near.end && reads_.Neighbor(n) < node) ++n;
      if (node == lane.before) {
        sum += back_;
      } else {
        sum += n < near.end && reads_.Neighbor(n) == node ? 1.0 : far_;
      }
      sums_.push_back(sum);
    }
    const double draw = OpenUnit(lane.random.Next()) * sum;
    const auto chosen = static_cast<uint64_t>(std::upper_bound(sums_.begin(), sums_.end(), draw) - sums_.begin());
    lane.candidate = reads_.Row(lane.extent.begin + std::min(chosen, lane.extent.size() - 1), lane.node);
    Move(lane);
  }

  // A search for the first neighbour that is not below the candidate. This neighbour is among the `size` neighbours
  // from `first` on, or directly after them.
  struct Search {
    Lane* lane;
    uint64_t first, size;
  };

  AdjacencyReads& reads_;
  const std::span<const NodeId> starts_;
  int64_t next_;
  const int64_t end_;
  const WalkOptions& options_;
  const double back_, far_, most_;
  const std::span<NodeId> out_;
  std::array<Lane, kLanes> lanes_;
  size_t active_ = 0;
  std::vector<Search> searches_;
  std::vector<double> sums_;
};

// Makes walks [begin, end) of RandomWalks by Node2Vec's second-order rule. A node's neighbours are the targets of its
// out-edges.
// Source: Grover and Leskovec 2016, section 3.2.
void WalkNode2Vec(AdjacencyReads& reads, std::span<const NodeId> starts, int64_t begin, int64_t end,
                  const WalkOptions& options, std::span<NodeId> out) {
  Walker(reads, starts, begin, end, options, out).Run();
}

}  // namespace

absl::Status RandomWalks(const GraphView& view, std::span<const NodeId> starts, const WalkOptions& options, int threads,
                         std::span<NodeId> out) {
  PF_RETURN_IF_ERROR(Check(view, starts, options, out));
  ReadFaults faults;
  const bool uniform = options.p == 1 && options.q == 1;
  ParallelFor(threads, static_cast<int64_t>(starts.size()), kWalksInPiece, [&](int64_t begin, int64_t end, int) {
    AdjacencyReads reads(view.out, faults);
    if (!uniform) {
      WalkNode2Vec(reads, starts, begin, end, options, out);
      return;
    }
    for (int64_t i = begin; i < end; i += kWalkLanes) {
      WalkTogether(reads, starts, i, std::min(end, i + kWalkLanes), options.length, options.seed, out);
    }
  });
  return StatusOf(faults, view.out);
}

}  // namespace permafrost::data
