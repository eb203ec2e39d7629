#include "data/sampling/random_walk.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "base/parallel.h"
#include "base/status.h"
#include "data/sampling/adjacency_reads.h"
#include "data/sampling/draw.h"
#include "data/sampling/node2vec.h"

namespace permafrost::data {
namespace {

constexpr int64_t kMaxLength = 1'000'000;
// Walks of one thread that wait for memory at once.
constexpr int64_t kWalkLanes = 64;
constexpr int64_t kWalksInPiece = 512;

// Walks [begin, end), end - begin <= kWalkLanes, step by step together: while one waits for its neighbour the others
// draw.
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
  if (options.length < 1 || options.length > kMaxLength) {
    violations.Add("length", absl::StrCat(options.length, " is outside 1..", kMaxLength));
  }
  if (!(options.p > 0) || !std::isfinite(options.p)) {
    violations.Add("p", absl::StrCat(options.p, " is not a finite number above 0"));
  }
  if (!(options.q > 0) || !std::isfinite(options.q)) {
    violations.Add("q", absl::StrCat(options.q, " is not a finite number above 0"));
  }
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
