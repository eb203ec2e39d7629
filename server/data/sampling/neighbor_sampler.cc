#include "data/sampling/neighbor_sampler.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "base/parallel.h"
#include "base/status.h"
#include "data/sampling/adjacency_reads.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/page_advisor.h"
#include "data/sampling/row_table.h"

namespace permafrost::data {
namespace {

// Nodes of one thread whose neighbours are on their way from memory at once.
constexpr int64_t kInFlight = 16;
constexpr int64_t kExtentsPiece = 2048, kDrawPiece = 256;
// Of a list that is taken whole; the processor sees by itself where a longer one goes on.
constexpr uint64_t kPrefetchedOfAll = 256;

class Sampler final : public NeighborSampler {
 public:
  Sampler(const GraphView& view, NeighborSamplingOptions options, int threads)
      : view_(view),
        options_(std::move(options)),
        threads_(std::max(threads, 1)),
        workers_(static_cast<size_t>(threads_), Worker{EdgeDraw(options_.replace, options_.weighted), {}}) {}

  absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, bool with_edge_places, PageAdvisor* advisor,
                      SampledSubgraph& out) override {
    PF_RETURN_IF_ERROR(TakeSeeds(seeds, out));
    const uint64_t key = SplitMix64(options_.seed, sample).Next();
    ReadFaults faults;
    for (size_t hop = 0; hop < options_.fan_outs.size(); ++hop) {
      const int64_t begin = hop == 0 ? 0 : out.row_ends[hop - 1];
      const Hop current{.fan_out = options_.fan_outs[hop],
                        .key = SplitMix64(key, hop).Next(),
                        .targets = std::span(out.nodes).subspan(static_cast<size_t>(begin)),
                        .faults = faults};
      FindExtents(current, advisor);
      PF_RETURN_IF_ERROR(StatusOf(faults, view_.in));
      found_.resize(static_cast<size_t>(firsts_.back()));
      if (with_edge_places) found_places_.resize(found_.size());
      if (advisor != nullptr) RequestNeighbors(current, *advisor);
      counts_.resize(current.targets.size());
      ParallelFor(threads_, static_cast<int64_t>(current.targets.size()), kDrawPiece,
                  [&](int64_t from, int64_t to, int w) {
                    AdjacencyReads reads(view_.in, faults);
                    for (int64_t i = from; i < to; i += kInFlight) {
                      DrawTogether(current, i, std::min(to, i + kInFlight), with_edge_places, reads,
                                   workers_[static_cast<size_t>(w)]);
                    }
                  });
      PF_RETURN_IF_ERROR(StatusOf(faults, view_.in));
      if (options_.weighted) CloseGaps(with_edge_places);
      Append(with_edge_places, out);
    }
    return absl::OkStatus();
  }

 private:
  struct Worker {
    EdgeDraw draw;
    std::vector<uint64_t> places;
  };
  struct Hop {
    int64_t fan_out;
    uint64_t key;
    std::span<const NodeId> targets;
    ReadFaults& faults;
  };

  absl::Status TakeSeeds(std::span<const NodeId> seeds, SampledSubgraph& out) {
    for (const NodeId seed : seeds) {
      if (seed >= view_.nodes) {
        return absl::InvalidArgumentError(
            absl::StrCat("seeds: ", seed, " is none of the graph's ", view_.nodes, " rows"));
      }
    }
    table_.Clear(seeds.size());
    out.sources.resize(seeds.size());
    table_.Relabel(seeds, out.nodes, out.sources);
    if (out.nodes.size() != seeds.size()) {
      size_t twice = 0;
      while (out.sources[twice] == static_cast<int64_t>(twice)) ++twice;
      return absl::InvalidArgumentError(absl::StrCat("seeds: ", seeds[twice], " stands twice; each may stand once"));
    }
    out.row_ends.assign(1, static_cast<int64_t>(seeds.size()));
    out.offsets.assign(1, 0);
    out.sources.clear();
    out.edge_places.clear();
    return absl::OkStatus();
  }

  // Where the targets' edges are, and where what is found of each will stand.
  void FindExtents(const Hop& hop, PageAdvisor* advisor) {
    if (advisor != nullptr) {
      for (const NodeId node : hop.targets) advisor->Request(view_.in.offsets.Reads(node, uint64_t{node} + 2));
      advisor->Flush();
    }
    const auto count = static_cast<int64_t>(hop.targets.size());
    extents_.resize(hop.targets.size());
    ParallelFor(threads_, count, kExtentsPiece, [&](int64_t begin, int64_t end, int) {
      AdjacencyReads reads(view_.in, hop.faults);
      for (int64_t i = begin; i < end; ++i) {
        if (i + kInFlight < end) reads.PrefetchExtent(hop.targets[static_cast<size_t>(i + kInFlight)]);
        extents_[static_cast<size_t>(i)] = reads.Of(hop.targets[static_cast<size_t>(i)]);
      }
    });
    firsts_.resize(hop.targets.size() + 1);
    firsts_[0] = 0;
    for (size_t i = 0; i < hop.targets.size(); ++i) {
      firsts_[i + 1] = firsts_[i] + static_cast<int64_t>(MaxDrawn(extents_[i].size(), hop.fan_out, options_.replace));
    }
  }

  bool IsReadWhole(Adjacency::Extent extent, int64_t fan_out) const {
    return extent.size() <= AdjacencyReads::kTouchedWhole || workers_[0].draw.TakesAll(extent.size(), fan_out);
  }
  std::span<uint64_t> RoomOf(std::vector<uint64_t>& places, size_t at, size_t room) const {
    if (places.size() < at + room) places.resize(at + room);
    return std::span(places).subspan(at, room);
  }

  void RequestNeighbors(const Hop& hop, PageAdvisor& advisor) {
    Worker& worker = workers_[0];
    for (size_t i = 0; i < extents_.size(); ++i) {
      const Adjacency::Extent extent = extents_[i];
      if (extent.size() == 0) continue;
      if (options_.weighted) advisor.Request(view_.in.weights.Reads(extent.begin, extent.end));
      if (options_.weighted || IsReadWhole(extent, hop.fan_out)) {
        advisor.Request(view_.in.neighbors.Reads(extent.begin, extent.end));
        continue;
      }
      // The draws to come, once more: they depend on nothing that is not known yet.
      const std::span<uint64_t> places = RoomOf(worker.places, 0, static_cast<size_t>(firsts_[i + 1] - firsts_[i]));
      const auto drawn = worker.draw.Draw(extent, nullptr, hop.fan_out, SplitMix64(hop.key, i), places);
      for (const uint64_t place : places.first(static_cast<size_t>(drawn))) {
        advisor.Request(view_.in.neighbors.Reads(place, place + 1));
      }
    }
    advisor.Flush();
  }

  // Draws of targets [begin, end), end - begin <= kInFlight: places first, all asked for, then read.
  void DrawTogether(const Hop& hop, int64_t begin, int64_t end, bool with_edge_places, AdjacencyReads& reads,
                    Worker& worker) {
    struct Drawn {
      bool all = false;
      size_t at = 0;  // in the worker's places
    };
    std::array<Drawn, kInFlight> drawn;
    size_t used = 0;
    for (int64_t t = begin; t < end; ++t) {
      const auto i = static_cast<size_t>(t);
      Drawn& mine = drawn[static_cast<size_t>(t - begin)];
      const Adjacency::Extent extent = extents_[i];
      counts_[i] = 0;
      if (extent.size() == 0) continue;
      const bool whole = IsReadWhole(extent, hop.fan_out);
      if (whole && !reads.Touch(extent.begin, extent.end)) continue;
      if (workers_[0].draw.TakesAll(extent.size(), hop.fan_out)) {
        mine.all = true;
        counts_[i] = static_cast<int64_t>(extent.size());
        reads.PrefetchNeighbors({extent.begin, std::min(extent.end, extent.begin + kPrefetchedOfAll)});
        continue;
      }
      if (options_.weighted && !reads.TouchWeights(extent)) continue;
      mine.at = used;
      const std::span<uint64_t> places = RoomOf(worker.places, used, static_cast<size_t>(firsts_[i + 1] - firsts_[i]));
      const float* weights = options_.weighted ? view_.in.weights.data() + extent.begin : nullptr;
      counts_[i] = worker.draw.Draw(extent, weights, hop.fan_out, SplitMix64(hop.key, i), places);
      used += static_cast<size_t>(counts_[i]);
      for (const uint64_t place : places.first(static_cast<size_t>(counts_[i]))) {
        reads.PrefetchNeighbor(place);
        if (!whole && !reads.Touch(place, place + 1)) counts_[i] = 0;
      }
    }
    for (int64_t t = begin; t < end; ++t) {
      const auto i = static_cast<size_t>(t);
      const Drawn& mine = drawn[static_cast<size_t>(t - begin)];
      const uint64_t* places = worker.places.data() + mine.at;
      const auto first = static_cast<size_t>(firsts_[i]);
      for (size_t e = 0; e < static_cast<size_t>(counts_[i]); ++e) {
        const uint64_t place = mine.all ? extents_[i].begin + e : places[e];
        found_[first + e] = reads.Row(place, hop.targets[i]);
        if (with_edge_places) found_places_[first + e] = place;
      }
    }
  }

  // Weights decide how many edges there are to draw, so some of the room may be left over.
  void CloseGaps(bool with_edge_places) {
    int64_t to = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      const int64_t from = firsts_[i];
      if (to < from) {
        std::copy_n(found_.begin() + from, counts_[i], found_.begin() + to);
        if (with_edge_places) std::copy_n(found_places_.begin() + from, counts_[i], found_places_.begin() + to);
      }
      firsts_[i] = to;
      to += counts_[i];
    }
    firsts_.back() = to;
    found_.resize(static_cast<size_t>(to));
    if (with_edge_places) found_places_.resize(found_.size());
  }

  // Local rows of what was found, in its order, so that they are the same whatever thread found it.
  void Append(bool with_edge_places, SampledSubgraph& out) {
    const auto edges = static_cast<int64_t>(out.sources.size());
    for (size_t i = 1; i < firsts_.size(); ++i) out.offsets.push_back(edges + firsts_[i]);
    out.sources.resize(out.sources.size() + found_.size());
    table_.Reserve(std::min<uint64_t>(view_.nodes, out.nodes.size() + found_.size()));
    table_.Relabel(found_, out.nodes, std::span(out.sources).subspan(static_cast<size_t>(edges)));
    out.row_ends.push_back(static_cast<int64_t>(out.nodes.size()));
    if (with_edge_places) out.edge_places.insert(out.edge_places.end(), found_places_.begin(), found_places_.end());
  }

  const GraphView& view_;
  const NeighborSamplingOptions options_;
  const int threads_;
  std::vector<Worker> workers_;
  RowTable table_;
  // Of the current hop, by target: its edges, where what was found of it begins, and how much that is.
  std::vector<Adjacency::Extent> extents_;
  std::vector<int64_t> firsts_;
  std::vector<int64_t> counts_;
  std::vector<NodeId> found_;
  std::vector<uint64_t> found_places_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<NeighborSampler>> NeighborSampler::Create(const GraphView& view,
                                                                         NeighborSamplingOptions options, int threads) {
  Violations violations;
  if (options.fan_outs.empty() || std::ssize(options.fan_outs) > kMaxHops) {
    violations.Add("fan_outs", absl::StrCat(options.fan_outs.size(), " hops are outside 1..", kMaxHops));
  }
  for (const int64_t fan_out : options.fan_outs) {
    if (IsFanOut(fan_out)) continue;
    violations.Add("fan_outs", absl::StrCat(fan_out, " is neither ", kAllNeighbors, " (all neighbours) nor within 1..",
                                            kMaxFanOut));
  }
  if (options.weighted && view.in.weights.size() != view.in.neighbors.size()) {
    violations.Add("weighted", "true, but the graph's edges have no weights");
  }
  PF_RETURN_IF_ERROR(violations.ToStatus());
  if (!view.in.present()) return absl::InvalidArgumentError("the graph keeps no in-edges");
  return std::make_unique<Sampler>(view, std::move(options), threads);
}

}  // namespace permafrost::data
