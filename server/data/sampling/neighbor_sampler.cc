#include "data/sampling/neighbor_sampler.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>
#include <optional>

#include "absl/strings/str_cat.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/status.h"
#include "data/sampling/adjacency_reads.h"
#include "data/sampling/disjoint_rows.h"
#include "data/sampling/draw.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/page_advisor.h"
#include "data/sampling/row_table.h"
#include "data/sampling/sample_budget.h"
#include "data/sampling/temporal_draw.h"

namespace permafrost::data {
namespace {

// Targets that one thread draws for at a time, all of whose neighbours are on their way from memory at once.
constexpr int64_t kPiece = 64;
// Targets ahead whose offsets are asked for.
constexpr size_t kTargetsAhead = 24;
// Of a list that is taken whole; the processor sees by itself where a longer one goes on.
constexpr uint64_t kPrefetchedOfAll = 256;

class Sampler final : public NeighborSampler {
 public:
  Sampler(const GraphView& view, NeighborSamplingOptions options, int threads)
      : view_(view),
        options_(std::move(options)),
        threads_(std::max(threads, 1)),
        workers_(static_cast<size_t>(threads_), Worker{EdgeDraw(options_.replace, options_.weighted),
                                                       TemporalDraw(options_.temporal, options_.replace),
                                                       EdgeDraw(/*replace=*/false, /*weighted=*/false),
                                                       TemporalDraw(options_.temporal, /*replace=*/false),
                                                       {},
                                                       {}}),
        table_(view.nodes) {}

  absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, bool with_edge_places, PageAdvisor* advisor,
                      SampledSubgraph& out, std::span<const int64_t> times) override {
    PF_RETURN_IF_ERROR(TakeTimes(times, std::ssize(seeds)));
    PF_RETURN_IF_ERROR(TakeSeeds(seeds, out));
    const uint64_t key = SplitMix64(options_.seed, sample).Next();
    ReadFaults faults;
    for (size_t hop = 0; hop < options_.fan_outs.size(); ++hop) {
      const int64_t begin = hop == 0 ? 0 : out.row_ends[hop - 1];
      targets_.assign(out.nodes.begin() + begin, out.nodes.begin() + out.row_ends[hop]);
      if (options_.disjoint) target_owners_.assign(out.owners.begin() + begin, out.owners.begin() + out.row_ends[hop]);
      const int64_t asked = options_.fan_outs[hop], fan_out = Thinned(asked, out.offsets.back(), faults);
      out.cut |= fan_out != asked;
      const Hop current{.fan_out = fan_out,
                        .of_all = asked == kAllNeighbors && fan_out != asked,
                        .key = SplitMix64(key, hop).Next(),
                        .with_edge_places = with_edge_places,
                        .faults = faults};
      if (fan_out == 0) {
        out.offsets.insert(out.offsets.end(), targets_.size(), int64_t{out.offsets.back()});
        targets_.clear();
      }
      if (advisor != nullptr) {
        Request(current, *advisor);
        PF_RETURN_IF_ERROR(StatusOf(faults, view_.in));
      }
      const auto count = static_cast<int64_t>(targets_.size()), pieces = (count + kPiece - 1) / kPiece;
      if (pieces_.size() < static_cast<size_t>(pieces)) pieces_.resize(static_cast<size_t>(pieces));
      // Rows are given in the order of the targets, so that they are the same whatever thread drew.
      const bool apart = options_.last_hop_apart && hop + 1 == options_.fan_outs.size();
      ParallelInOrder(
          threads_, pieces, [&](int64_t p, int worker) { Draw(current, p, workers_[static_cast<size_t>(worker)]); },
          [&](int64_t p) {
            if (options_.max_nodes > 0) {
              AppendWithin(current, p, out);
            } else {
              Append(current, p, apart, out);
            }
          });
      PF_RETURN_IF_ERROR(StatusOf(faults, view_.in));
      if (!apart) out.row_ends.push_back(static_cast<int64_t>(rows_found()));
    }
    out.nodes.resize(rows_found());
    out.sources.resize(static_cast<size_t>(out.offsets.back()) - out.last_neighbors.size());
    return absl::OkStatus();
  }

 private:
  struct Hop {
    int64_t fan_out;
    bool of_all;  // whether the budget left so many of kAllNeighbors: distinct ones, each as likely
    uint64_t key;
    bool with_edge_places;
    ReadFaults& faults;
  };
  // Vectors of both are as large as they ever had to be.
  struct Worker {
    EdgeDraw draw;
    TemporalDraw temporal;
    // Of hops that are `of_all`.
    EdgeDraw distinct;
    TemporalDraw temporal_distinct;
    // Of the targets of a piece. Places: of the edges drawn, in order; those of targets that are taken whole left out.
    std::array<Adjacency::Extent, kPiece> extents;
    std::vector<uint64_t> places;
  };
  // What was drawn for up to kPiece targets.
  struct Piece {
    size_t targets = 0, edges = 0;
    std::array<size_t, kPiece> counts{};  // edges of each target
    std::vector<NodeId> found;
    std::vector<uint64_t> found_places;
  };

  absl::Status TakeSeeds(std::span<const NodeId> seeds, SampledSubgraph& out) {
    for (const NodeId seed : seeds) {
      if (seed >= view_.nodes) {
        return absl::InvalidArgumentError(
            absl::StrCat("seeds: ", seed, " is none of the graph's ", view_.nodes, " rows"));
      }
    }
    if (options_.max_nodes > 0 && std::ssize(seeds) > options_.max_nodes) {
      Violations violations;
      violations.Add("max_nodes", absl::StrCat(options_.max_nodes, " is less than the ", seeds.size(),
                                               " seeds of a sample; accepted: at least ", seeds.size()));
      return violations.ToStatus();
    }
    table_.Clear();
    disjoint_rows_.Clear();
    out.owners.clear();
    Enlarge(out.sources, seeds.size());
    if (options_.disjoint) {
      out.nodes.clear();
      target_owners_.resize(seeds.size());
      std::iota(target_owners_.begin(), target_owners_.end(), 0U);
      disjoint_rows_.Relabel(seeds, target_owners_, out.nodes, out.owners, out.sources);
    } else {
      table_.Relabel(seeds, out.nodes, out.sources);
    }
    if (rows_found() != seeds.size()) {
      size_t twice = 0;
      while (out.sources[twice] == static_cast<int64_t>(twice)) ++twice;
      return absl::InvalidArgumentError(absl::StrCat("seeds: ", seeds[twice], " stands twice; each may stand once"));
    }
    out.row_ends.assign(1, static_cast<int64_t>(seeds.size()));
    out.offsets.assign(1, 0);
    out.last_neighbors.clear();
    out.edge_places.clear();
    out.cut = false;
    return absl::OkStatus();
  }

  absl::Status TakeTimes(std::span<const int64_t> times, int64_t seeds) {
    times_ = times;
    if (times.empty()) return absl::OkStatus();
    if (!temporal()) return absl::InvalidArgumentError("times: are given, but the sample is not temporal");
    if (std::ssize(times) == seeds) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("times: has ", times.size(), " entries; accepted: one for each of the ", seeds, " seeds"));
  }

  bool temporal() const { return options_.temporal != TemporalSampling::kNone; }
  bool labor() const { return options_.sampler == SamplerKind::kLabor; }
  uint64_t rows_found() const { return options_.disjoint ? disjoint_rows_.size() : table_.size(); }

  // Sets no value that is written anyway.
  template <class T>
  static void Enlarge(std::vector<T>& values, size_t size) {
    if (values.size() < size) values.resize(size);
  }

  // What each target of the hop draws at most, so that `drawn` edges and theirs are within max_edges: `fan_out`, or
  // less where its targets have more edges than that leaves room for. It depends on the sample so far alone.
  int64_t Thinned(int64_t fan_out, int64_t drawn, ReadFaults& faults) {
    const auto count = static_cast<int64_t>(targets_.size());
    if (options_.max_edges == 0 || count == 0) return fan_out;
    const int64_t left = options_.max_edges - drawn;
    if (fan_out != kAllNeighbors && fan_out <= left / count) return fan_out;
    AdjacencyReads reads(view_.in, faults);
    degrees_.clear();
    degrees_.reserve(targets_.size());
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (i + kTargetsAhead < targets_.size()) reads.PrefetchExtent(targets_[i + kTargetsAhead]);
      const auto most = static_cast<int64_t>(options_.MostDrawn(reads.Of(targets_[i]).size(), fan_out));
      if (most > 0) degrees_.push_back(most);
    }
    return FanOutWithin(degrees_, left, fan_out);
  }

  bool TakesAll(const Hop& hop, uint64_t degree) const {
    const Worker& worker = workers_[0];
    return !temporal() && (hop.of_all ? worker.distinct : worker.draw).TakesAll(degree, hop.fan_out);
  }
  bool IsReadWhole(const Hop& hop, Adjacency::Extent extent) const {
    return labor() || extent.size() <= AdjacencyReads::kTouchedWhole || TakesAll(hop, extent.size());
  }
  // Asks for the pages of the targets' edges, as far as they will be read.
  void Request(const Hop& hop, PageAdvisor& advisor) {
    for (const NodeId node : targets_) advisor.Request(view_.in.offsets.Reads(node, uint64_t{node} + 2));
    advisor.Flush();
    AdjacencyReads reads(view_.in, hop.faults);
    Worker& worker = workers_[0];
    for (size_t i = 0; i < targets_.size(); ++i) {
      if (i + kTargetsAhead < targets_.size()) reads.PrefetchExtent(targets_[i + kTargetsAhead]);
      const Adjacency::Extent extent = reads.Of(targets_[i]);
      if (extent.size() == 0) continue;
      if (options_.weighted) advisor.Request(view_.in.weights.Reads(extent.begin, extent.end));
      if (temporal()) advisor.Request(view_.in.timestamps.Reads(extent.begin, extent.end));
      if (options_.weighted || temporal() || IsReadWhole(hop, extent)) {
        advisor.Request(view_.in.neighbors.Reads(extent.begin, extent.end));
        continue;
      }
      // The draws to come: they depend on nothing that is not known yet.
      for (const uint64_t place : DrawPlaces(hop, i, extent, reads, worker, 0)) {
        advisor.Request(view_.in.neighbors.Reads(place, place + 1));
      }
    }
    advisor.Flush();
  }

  // The places of the edges drawn for target `i`, written to the worker's from `at` on. What it reads is touched.
  std::span<const uint64_t> DrawPlaces(const Hop& hop, size_t i, Adjacency::Extent extent, AdjacencyReads& reads,
                                       Worker& worker, size_t at) const {
    const auto most = static_cast<size_t>(hop.of_all ? MaxDrawn(extent.size(), hop.fan_out, /*replace=*/false)
                                                     : options_.MostDrawn(extent.size(), hop.fan_out));
    Enlarge(worker.places, at + most);
    const std::span<uint64_t> places = std::span(worker.places).subspan(at, most);
    const SplitMix64 random(hop.key, i);
    int64_t drawn = 0;
    if (labor()) {
      drawn = DrawShared(hop, i, extent, reads, places);
    } else if (temporal()) {
      const auto before = times_.empty() ? std::nullopt : std::optional(times_[target_owners_[i]]);
      TemporalDraw& draw = hop.of_all ? worker.temporal_distinct : worker.temporal;
      drawn = draw.Draw(extent, view_.in.timestamps.data() + extent.begin, before, hop.fan_out, random, places);
    } else {
      const float* weights = options_.weighted ? view_.in.weights.data() + extent.begin : nullptr;
      drawn = (hop.of_all ? worker.distinct : worker.draw).Draw(extent, weights, hop.fan_out, random, places);
    }
    return places.first(static_cast<size_t>(drawn));
  }

  // LABOR-0: an edge is taken where its source's number of this hop, which all targets share, is within the target's
  // chance.
  int64_t DrawShared(const Hop& hop, size_t i, Adjacency::Extent extent, AdjacencyReads& reads,
                     std::span<uint64_t> places) const {
    const double chance = static_cast<double>(hop.fan_out) / static_cast<double>(extent.size());
    size_t drawn = 0;
    for (uint64_t place = extent.begin; place < extent.end; ++place) {
      const NodeId source = reads.Row(place, targets_[i]);
      if (OpenUnit(SplitMix64(hop.key, source).Next()) <= chance) places[drawn++] = place;
    }
    return static_cast<int64_t>(drawn);
  }

  // Piece `p` of the targets: places first, all asked for, then read.
  void Draw(const Hop& hop, int64_t p, Worker& worker) {
    AdjacencyReads reads(view_.in, hop.faults);
    Piece& piece = pieces_[static_cast<size_t>(p)];
    const auto begin = static_cast<size_t>(p * kPiece);
    piece.targets = std::min(targets_.size() - begin, static_cast<size_t>(kPiece));
    piece.edges = 0;
    const std::span<const NodeId> targets = std::span(targets_).subspan(begin, piece.targets);
    for (size_t t = 0; t < std::min(kTargetsAhead, targets.size()); ++t) reads.PrefetchExtent(targets[t]);
    size_t used = 0;
    for (size_t t = 0; t < targets.size(); ++t) {
      if (t + kTargetsAhead < targets.size()) reads.PrefetchExtent(targets[t + kTargetsAhead]);
      const Adjacency::Extent extent = worker.extents[t] = reads.Of(targets[t]);
      piece.counts[t] = DrawOne(hop, begin + t, extent, reads, worker, used);
      if (!TakesAll(hop, extent.size())) used += piece.counts[t];
      piece.edges += piece.counts[t];
    }
    Enlarge(piece.found, piece.edges);
    if (hop.with_edge_places) Enlarge(piece.found_places, piece.edges);
    const uint64_t* places = worker.places.data();
    for (size_t t = 0, at = 0; t < targets.size(); at += piece.counts[t++]) {
      const size_t edges = piece.counts[t];
      const uint64_t first = worker.extents[t].begin;
      const bool all = TakesAll(hop, worker.extents[t].size());
      for (size_t e = 0; e < edges; ++e) piece.found[at + e] = reads.Row(all ? first + e : places[e], targets[t]);
      for (size_t e = 0; hop.with_edge_places && e < edges; ++e) {
        piece.found_places[at + e] = all ? first + e : places[e];
      }
      if (!all) places += edges;
    }
  }

  // How many edges are drawn for target `i`; they are asked for, and their places written to the worker's from `at` on
  // unless all are taken.
  size_t DrawOne(const Hop& hop, size_t i, Adjacency::Extent extent, AdjacencyReads& reads, Worker& worker,
                 size_t at) const {
    if (extent.size() == 0) return 0;
    const bool whole = IsReadWhole(hop, extent);
    if (whole && !reads.Touch(extent.begin, extent.end)) return 0;
    if (TakesAll(hop, extent.size())) {
      reads.PrefetchNeighbors({extent.begin, std::min(extent.end, extent.begin + kPrefetchedOfAll)});
      return static_cast<size_t>(extent.size());
    }
    if (options_.weighted && !reads.TouchWeights(extent)) return 0;
    if (temporal() && !reads.TouchTimestamps(extent)) return 0;
    const std::span<const uint64_t> places = DrawPlaces(hop, i, extent, reads, worker, at);
    for (const uint64_t place : places) {
      if (!whole && !reads.Touch(place, place + 1)) return 0;
      reads.PrefetchNeighbor(place);
    }
    return places.size();
  }

  void Append(const Hop& hop, int64_t p, bool apart, SampledSubgraph& out) {
    const Piece& piece = pieces_[static_cast<size_t>(p)];
    const auto edges = static_cast<size_t>(out.offsets.back());
    size_t end = edges;
    for (const size_t count : std::span(piece.counts).first(piece.targets)) {
      out.offsets.push_back(static_cast<int64_t>(end += count));
    }
    const std::span<const NodeId> found = std::span(piece.found).first(piece.edges);
    if (apart) {
      out.last_neighbors.insert(out.last_neighbors.end(), found.begin(), found.end());
    } else {
      Enlarge(out.sources, edges + piece.edges);
      const std::span<int64_t> rows = std::span(out.sources).subspan(edges, piece.edges);
      if (options_.disjoint) {
        SetFoundOwners(piece, p);
        disjoint_rows_.Relabel(found, found_owners_, out.nodes, out.owners, rows);
      } else {
        table_.Relabel(found, out.nodes, rows);
      }
    }
    if (hop.with_edge_places) {
      out.edge_places.insert(out.edge_places.end(), piece.found_places.begin(),
                             piece.found_places.begin() + static_cast<int64_t>(piece.edges));
    }
  }

  // The same within max_nodes: edges from nodes that get no row are left out. No last hop is apart.
  void AppendWithin(const Hop& hop, int64_t p, SampledSubgraph& out) {
    const Piece& piece = pieces_[static_cast<size_t>(p)];
    const auto begin = static_cast<size_t>(out.offsets.back());
    Enlarge(out.sources, begin + piece.edges);
    const std::span<const NodeId> found = std::span(piece.found).first(piece.edges);
    const std::span<int64_t> rows = std::span(out.sources).subspan(begin, piece.edges);
    const auto most = static_cast<uint64_t>(options_.max_nodes);
    if (options_.disjoint) {
      SetFoundOwners(piece, p);
      disjoint_rows_.RelabelWithin(most, found, found_owners_, out.nodes, out.owners, rows);
    } else {
      table_.RelabelWithin(most, found, out.nodes, rows);
    }
    size_t kept = 0, edge = 0;
    for (const size_t count : std::span(piece.counts).first(piece.targets)) {
      for (const size_t end = edge + count; edge < end; ++edge) {
        if (rows[edge] == RowTable::kNoRow) {
          out.cut = true;
          continue;
        }
        rows[kept++] = rows[edge];
        if (hop.with_edge_places) out.edge_places.push_back(piece.found_places[edge]);
      }
      out.offsets.push_back(static_cast<int64_t>(begin + kept));
    }
  }

  // Of the edges of a piece, the seed whose subgraph each is in.
  void SetFoundOwners(const Piece& piece, int64_t p) {
    found_owners_.clear();
    for (size_t t = 0; t < piece.targets; ++t) {
      found_owners_.insert(found_owners_.end(), piece.counts[t], target_owners_[static_cast<size_t>(p * kPiece) + t]);
    }
  }

  const GraphView& view_;
  const NeighborSamplingOptions options_;
  const int threads_;
  std::vector<Worker> workers_;
  RowTable table_;
  DisjointRows disjoint_rows_;      // in its place, where it is disjoint
  std::span<const int64_t> times_;  // of the current sample
  // Of the current hop.
  std::vector<NodeId> targets_;
  std::vector<uint32_t> target_owners_, found_owners_;
  std::vector<int64_t> degrees_;  // as far as the hop draws of them
  std::vector<Piece> pieces_;
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
  if (const auto conflict = FindDrawConflict(options)) violations.Add(conflict->field, conflict->description);
  if (options.temporal != TemporalSampling::kNone) {
    if (view.in.timestamps.size() != view.in.neighbors.size()) {
      violations.Add("temporal", "is given, but the graph's edges have no timestamps");
    } else if (!options.disjoint) {
      violations.Add("temporal", "is given without disjoint: each seed sees the edges before a time of its own");
    }
  }
  if (options.last_hop_apart && options.fan_outs.size() < 2) {
    violations.Add("last_hop_apart", absl::StrCat("true, with ", options.fan_outs.size(), " hops; it takes 2 or more"));
  }
  CheckSampleBudget(options, violations);
  PF_RETURN_IF_ERROR(violations.ToStatus());
  if (!view.in.present()) return absl::InvalidArgumentError("the graph keeps no in-edges");
  return std::make_unique<Sampler>(view, std::move(options), threads);
}

}  // namespace permafrost::data
