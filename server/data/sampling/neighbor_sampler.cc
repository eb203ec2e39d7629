#include "data/sampling/neighbor_sampler.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/status.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/page_advisor.h"
#include "data/sampling/row_table.h"
#include "data/store/graph.h"

namespace permafrost::data {
namespace {

// Offsets are prefetched this many targets ahead.
constexpr size_t kTargetsAhead = 24;
// If all edges of a target are taken, at most this many of its neighbours are prefetched. The processor itself
// prefetches the rest of a longer list.
constexpr uint64_t kPrefetchedOfAll = 256;

// Makes `values` at least `size` long. Never shrinks it, so that no value is initialised only to be overwritten.
template <class T>
void Enlarge(std::vector<T>& values, size_t size) {
  if (values.size() < size) values.resize(size);
}

// Draws the edges of one hop of a sample. It draws for a piece of the targets at a time, so that the memory reads of
// many targets overlap.
// Threads: Begin, FanOutLeft and Request are called by one thread at a time. Between two calls of Begin, different
// workers may draw different pieces at once.
class HopDraw {
 public:
  // The number of targets for which a worker draws at a time.
  static constexpr int64_t kPiece = 64;

  // HopDraw borrows the spans until the next Begin.
  struct Hop {
    std::span<const NodeId> targets;
    std::span<const uint32_t> owners;  // for disjoint samples: the seed of each target
    // For temporal samples, the time of each seed. If empty, every edge may be drawn.
    std::span<const int64_t> times;
    int64_t fan_out = 0;
    // True if the hop's own fan-out is kAllNeighbors, but max_edges allows only `fan_out` edges for each target. Then
    // `fan_out` distinct edges are drawn, all equally likely.
    bool of_all = false;
    uint64_t key = 0;
    bool with_edge_places = false;
  };
  // The edges drawn for up to kPiece targets. The vectors never shrink, so only their first `edges` entries count.
  struct Piece {
    size_t targets = 0, edges = 0;
    std::array<size_t, kPiece> counts{};  // edges of each target
    std::vector<NodeId> found;
    std::vector<uint64_t> found_places;
  };

  // Borrows `view` and `options`.
  HopDraw(const GraphView& view, const NeighborSamplingOptions& options, int threads);

  // Returns the most edges that each target may draw so that the sample, which has `drawn` edges so far, stays within
  // max_edges. This is `fan_out`, or less if the targets would draw more edges than are left. It depends only on the
  // sample so far.
  int64_t FanOutLeft(std::span<const NodeId> targets, int64_t fan_out, int64_t drawn, ReadFaults& faults);

  void Begin(const Hop& hop);
  int64_t pieces() const { return (std::ssize(hop_.targets) + kPiece - 1) / kPiece; }
  // Requests the pages from which the targets' edges will be read.
  void Request(PageAdvisor& advisor, ReadFaults& faults);
  // Draws piece `p` of the targets. `worker` is 0..threads-1.
  void Draw(int64_t p, int worker, ReadFaults& faults);
  // Returns the edges drawn for piece `p`.
  const Piece& piece(int64_t p) const { return pieces_[static_cast<size_t>(p)]; }

 private:
  struct Worker {
    EdgeDraw draw;
    TemporalDraw temporal;
    // Used for hops with `of_all`.
    EdgeDraw distinct;
    TemporalDraw temporal_distinct;
    // `extents` has one entry for each target of a piece. `places` has the drawn edges in order, except the edges of
    // targets whose edges are all taken.
    std::array<Adjacency::Extent, kPiece> extents;
    std::vector<uint64_t> places;
  };

  bool temporal() const { return options_.temporal != spec::TemporalSampling::kNone; }
  bool labor() const { return options_.sampler == spec::SamplerKind::kLabor; }
  bool IsReadWhole(Adjacency::Extent extent) const;
  std::span<const uint64_t> DrawPlaces(size_t i, Adjacency::Extent extent, AdjacencyReads& reads, Worker& worker,
                                       size_t at) const;
  int64_t DrawShared(size_t i, Adjacency::Extent extent, AdjacencyReads& reads, std::span<uint64_t> places) const;
  size_t TakeWhole(Adjacency::Extent extent, AdjacencyReads& reads) const;
  size_t DrawSome(size_t i, Adjacency::Extent extent, AdjacencyReads& reads, Worker& worker, size_t at) const;
  void ReadFound(std::span<const NodeId> targets, const Worker& worker, AdjacencyReads& reads, Piece& piece) const;
  void CopyPlaces(const Worker& worker, Piece& piece) const;

  const GraphView& view_;
  const NeighborSamplingOptions& options_;
  std::vector<Worker> workers_;
  std::vector<Piece> pieces_;
  std::vector<int64_t> degrees_;  // for each target with in-edges: the most edges that it draws
  Hop hop_;
  uint64_t most_whole_ = 0;  // the largest degree of a target whose edges are all taken
};

HopDraw::HopDraw(const GraphView& view, const NeighborSamplingOptions& options, int threads)
    : view_(view),
      options_(options),
      workers_(static_cast<size_t>(threads), Worker{EdgeDraw(options.replace, options.weighted),
                                                    TemporalDraw(options.temporal, options.replace),
                                                    EdgeDraw(/*replace=*/false, /*weighted=*/false),
                                                    TemporalDraw(options.temporal, /*replace=*/false),
                                                    {},
                                                    {}}) {}

int64_t HopDraw::FanOutLeft(std::span<const NodeId> targets, int64_t fan_out, int64_t drawn, ReadFaults& faults) {
  const std::ptrdiff_t count = std::ssize(targets);
  if (options_.max_edges == 0 || count == 0) return fan_out;
  const int64_t left = options_.max_edges - drawn;
  if (fan_out != spec::kAllNeighbors && fan_out <= left / count) return fan_out;
  AdjacencyReads reads(view_.in, faults);
  degrees_.clear();
  degrees_.reserve(targets.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    if (i + kTargetsAhead < targets.size()) reads.PrefetchExtent(targets[i + kTargetsAhead]);
    const auto most = static_cast<int64_t>(options_.MostDrawn(reads.Of(targets[i]).size(), fan_out));
    if (most > 0) degrees_.push_back(most);
  }
  return FanOutWithin(degrees_, left, fan_out);
}

bool HopDraw::IsReadWhole(Adjacency::Extent extent) const {
  return labor() || (options_.weighted && hop_.fan_out == spec::kAllNeighbors) ||
         extent.size() <= AdjacencyReads::kTouchedWhole || extent.size() <= most_whole_;
}

void HopDraw::Begin(const Hop& hop) {
  hop_ = hop;
  const Worker& worker = workers_[0];
  most_whole_ =
      temporal() || options_.weighted ? 0 : (hop.of_all ? worker.distinct : worker.draw).MostTakenWhole(hop.fan_out);
  Enlarge(pieces_, static_cast<size_t>(pieces()));
}

void HopDraw::Request(PageAdvisor& advisor, ReadFaults& faults) {
  for (const NodeId node : hop_.targets) advisor.Request(view_.in.offsets.Reads(node, uint64_t{node} + 2));
  advisor.Flush();
  AdjacencyReads reads(view_.in, faults);
  Worker& worker = workers_[0];
  for (size_t i = 0; i < hop_.targets.size(); ++i) {
    if (i + kTargetsAhead < hop_.targets.size()) reads.PrefetchExtent(hop_.targets[i + kTargetsAhead]);
    const Adjacency::Extent extent = reads.Of(hop_.targets[i]);
    if (extent.size() == 0) continue;
    if (options_.weighted) advisor.Request(view_.in.weights.Reads(extent.begin, extent.end));
    if (temporal()) advisor.Request(view_.in.timestamps.Reads(extent.begin, extent.end));
    if (options_.weighted || temporal() || IsReadWhole(extent)) {
      advisor.Request(view_.in.neighbors.Reads(extent.begin, extent.end));
      continue;
    }
    // The draws are made here as well as in Draw. They are equal, since they depend only on the key and the extent.
    for (const uint64_t place : DrawPlaces(i, extent, reads, worker, 0)) {
      advisor.Request(view_.in.neighbors.Reads(place, place + 1));
    }
  }
  advisor.Flush();
}

// Returns the places of the edges drawn for target `i`. They are written to the worker's `places` from index `at` on.
// The caller must have touched the columns that the draw reads.
std::span<const uint64_t> HopDraw::DrawPlaces(size_t i, Adjacency::Extent extent, AdjacencyReads& reads, Worker& worker,
                                              size_t at) const {
  const auto most = static_cast<size_t>(hop_.of_all ? MaxDrawn(extent.size(), hop_.fan_out, /*replace=*/false)
                                                    : options_.MostDrawn(extent.size(), hop_.fan_out));
  Enlarge(worker.places, at + most);
  const std::span<uint64_t> places = std::span(worker.places).subspan(at, most);
  const SplitMix64 random(hop_.key, i);
  int64_t drawn = 0;
  if (labor()) {
    drawn = DrawShared(i, extent, reads, places);
  } else if (temporal()) {
    const auto before = hop_.times.empty() ? std::nullopt : std::optional(hop_.times[hop_.owners[i]]);
    TemporalDraw& draw = hop_.of_all ? worker.temporal_distinct : worker.temporal;
    drawn = draw.Draw(extent, view_.in.timestamps.data() + extent.begin, before, hop_.fan_out, random, places);
  } else {
    const float* weights = options_.weighted ? view_.in.weights.data() + extent.begin : nullptr;
    if (hop_.of_all && options_.weighted) {
      drawn = worker.distinct.DrawEvenly(extent, weights, hop_.fan_out, random, places);
    } else {
      drawn = (hop_.of_all ? worker.distinct : worker.draw).Draw(extent, weights, hop_.fan_out, random, places);
    }
  }
  return places.first(static_cast<size_t>(drawn));
}

// LABOR-0: in each hop a source has one random number, which all targets share. An edge is taken if this number is at
// most fan_out / in-degree of the target.
int64_t HopDraw::DrawShared(size_t i, Adjacency::Extent extent, AdjacencyReads& reads,
                            std::span<uint64_t> places) const {
  const double chance = static_cast<double>(hop_.fan_out) / static_cast<double>(extent.size());
  size_t drawn = 0;
  for (uint64_t place = extent.begin; place < extent.end; ++place) {
    const NodeId source = reads.Row(place, hop_.targets[i]);
    if (OpenUnit(SplitMix64(hop_.key, source).Next()) <= chance) places[drawn++] = place;
  }
  return static_cast<int64_t>(drawn);
}

// Draws and prefetches the places for all targets, and then reads the neighbours. The loops are short, so that the
// processor has the reads of many targets under way at once.
void HopDraw::Draw(int64_t p, int worker_index, ReadFaults& faults) {
  Worker& worker = workers_[static_cast<size_t>(worker_index)];
  AdjacencyReads reads(view_.in, faults);
  Piece& piece = pieces_[static_cast<size_t>(p)];
  const auto begin = static_cast<size_t>(p * kPiece);
  piece.targets = std::min(hop_.targets.size() - begin, static_cast<size_t>(kPiece));
  piece.edges = 0;
  const std::span<const NodeId> targets = std::span(hop_.targets).subspan(begin, piece.targets);
  for (size_t t = 0; t < std::min(kTargetsAhead, targets.size()); ++t) reads.PrefetchExtent(targets[t]);
  size_t used = 0;
  for (size_t t = 0; t < targets.size(); ++t) {
    if (t + kTargetsAhead < targets.size()) reads.PrefetchExtent(targets[t + kTargetsAhead]);
    const Adjacency::Extent extent = worker.extents[t] = reads.Of(targets[t]);
    size_t count = 0;
    if (extent.size() <= most_whole_) {
      count = TakeWhole(extent, reads);
    } else if (extent.size() > 0) {
      count = DrawSome(begin + t, extent, reads, worker, used);
      used += count;
    }
    piece.counts[t] = count;
    piece.edges += count;
  }
  ReadFound(targets, worker, reads, piece);
  if (hop_.with_edge_places) CopyPlaces(worker, piece);
}

// Takes all edges of a target: prefetches them and returns their number.
size_t HopDraw::TakeWhole(Adjacency::Extent extent, AdjacencyReads& reads) const {
  if (extent.size() == 0 || !reads.Touch(extent.begin, extent.end)) return 0;
  reads.PrefetchNeighbors({extent.begin, std::min(extent.end, extent.begin + kPrefetchedOfAll)});
  return static_cast<size_t>(extent.size());
}

// Draws edges for target `i`, which has in-edges that are not all taken. Prefetches them, writes their places to the
// worker's `places` from index `at` on, and returns their number.
size_t HopDraw::DrawSome(size_t i, Adjacency::Extent extent, AdjacencyReads& reads, Worker& worker, size_t at) const {
  const bool whole = IsReadWhole(extent);
  if (whole && !reads.Touch(extent.begin, extent.end)) return 0;
  if (options_.weighted && !reads.TouchWeights(extent)) return 0;
  if (temporal() && !reads.TouchTimestamps(extent)) return 0;
  const std::span<const uint64_t> places = DrawPlaces(i, extent, reads, worker, at);
  for (const uint64_t place : places) {
    if (!whole && !reads.Touch(place, place + 1)) return 0;
    reads.PrefetchNeighbor(place);
  }
  return places.size();
}

// Reads the drawn neighbours of the targets. The first loop reads them as stored, and does nothing else because it
// waits for memory. The second loop replaces each neighbour that is not a row by the target of its edge.
void HopDraw::ReadFound(std::span<const NodeId> targets, const Worker& worker, AdjacencyReads& reads,
                        Piece& piece) const {
  Enlarge(piece.found, piece.edges);
  NodeId* found = piece.found.data();
  const NodeId* const neighbors = view_.in.neighbors.data();
  const uint64_t* place = worker.places.data();
  for (size_t t = 0; t < targets.size(); ++t) {
    const Adjacency::Extent extent = worker.extents[t];
    const size_t count = piece.counts[t];
    if (extent.size() <= most_whole_) {
      for (size_t e = 0; e < count; ++e) found[e] = neighbors[extent.begin + e];
    } else {
      for (size_t e = 0; e < count; ++e) found[e] = neighbors[place[e]];
      place += count;
    }
    found += count;
  }
  if (reads.AreRows(std::span(piece.found).first(piece.edges))) return;
  found = piece.found.data();
  for (size_t t = 0; t < targets.size(); ++t) {
    for (size_t e = 0; e < piece.counts[t]; ++e, ++found) *found = *found < reads.nodes() ? *found : targets[t];
  }
}

// Sets piece.found_places, the place of each edge of the piece in the graph's columns.
void HopDraw::CopyPlaces(const Worker& worker, Piece& piece) const {
  Enlarge(piece.found_places, piece.edges);
  uint64_t* found = piece.found_places.data();
  const uint64_t* place = worker.places.data();
  for (size_t t = 0; t < piece.targets; ++t) {
    const Adjacency::Extent extent = worker.extents[t];
    const size_t count = piece.counts[t];
    if (extent.size() <= most_whole_) {
      std::iota(found, found + count, extent.begin);
    } else {
      std::copy_n(place, count, found);
      place += count;
    }
    found += count;
  }
}

class Sampler final : public NeighborSampler {
 public:
  Sampler(const GraphView& view, NeighborSamplingOptions options, int threads, bool little_memory)
      : view_(view),
        options_(std::move(options)),
        threads_(std::max(threads, 1)),
        draw_(view, options_, threads_),
        table_(little_memory ? kMaxNodes : view.nodes) {}

  absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, bool with_edge_places, PageAdvisor* advisor,
                      SampledSubgraph& out, std::span<const int64_t> times) override {
    PF_RETURN_IF_ERROR(CheckTimes(times, std::ssize(seeds)));
    PF_RETURN_IF_ERROR(TakeSeeds(seeds, out));
    const uint64_t key = SplitMix64(options_.seed, sample).Next();
    ReadFaults faults;
    for (size_t hop = 0; hop < options_.fan_outs.size(); ++hop) {
      const int64_t begin = hop == 0 ? 0 : out.row_ends[hop - 1];
      targets_.assign(out.nodes.begin() + begin, out.nodes.begin() + out.row_ends[hop]);
      if (options_.disjoint) target_owners_.assign(out.owners.begin() + begin, out.owners.begin() + out.row_ends[hop]);
      const int64_t asked = options_.fan_outs[hop],
                    fan_out = draw_.FanOutLeft(targets_, asked, out.offsets.back(), faults);
      out.cut |= fan_out != asked;
      if (fan_out == 0) {
        out.offsets.insert(out.offsets.end(), targets_.size(), int64_t{out.offsets.back()});
        targets_.clear();
      }
      draw_.Begin({.targets = targets_,
                   .owners = target_owners_,
                   .times = times,
                   .fan_out = fan_out,
                   .of_all = asked == spec::kAllNeighbors && fan_out != asked,
                   .key = SplitMix64(key, hop).Next(),
                   .with_edge_places = with_edge_places});
      if (advisor != nullptr) {
        draw_.Request(*advisor, faults);
        PF_RETURN_IF_ERROR(StatusOf(faults, view_.in));
      }
      // Rows are assigned in the order of the targets, so they are the same whichever thread drew the edges.
      const bool apart = options_.last_hop_apart && hop + 1 == options_.fan_outs.size();
      ParallelInOrder(
          threads_, draw_.pieces(), [&](int64_t p, int worker) { draw_.Draw(p, worker, faults); },
          [&](int64_t p) {
            if (options_.max_nodes > 0) {
              AppendWithin(p, with_edge_places, out);
            } else {
              Append(p, apart, with_edge_places, out);
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

  absl::Status CheckTimes(std::span<const int64_t> times, int64_t seeds) const {
    if (times.empty()) return absl::OkStatus();
    if (!temporal()) return absl::InvalidArgumentError("times: are given, but the sample is not temporal");
    if (std::ssize(times) == seeds) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("times: has ", times.size(), " entries; accepted: one for each of the ", seeds, " seeds"));
  }

  bool temporal() const { return options_.temporal != spec::TemporalSampling::kNone; }
  uint64_t rows_found() const { return options_.disjoint ? disjoint_rows_.size() : table_.size(); }

  void Append(int64_t p, bool apart, bool with_edge_places, SampledSubgraph& out) {
    const HopDraw::Piece& piece = draw_.piece(p);
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
    if (with_edge_places) {
      out.edge_places.insert(out.edge_places.end(), piece.found_places.begin(),
                             piece.found_places.begin() + static_cast<int64_t>(piece.edges));
    }
  }

  // Like Append, but within max_nodes: leaves out edges whose source gets no row. Must not be called for a last hop
  // apart.
  void AppendWithin(int64_t p, bool with_edge_places, SampledSubgraph& out) {
    const HopDraw::Piece& piece = draw_.piece(p);
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
        if (with_edge_places) out.edge_places.push_back(piece.found_places[edge]);
      }
      out.offsets.push_back(static_cast<int64_t>(begin + kept));
    }
  }

  // Sets found_owners_: for each edge of a piece, the seed whose subgraph it belongs to.
  void SetFoundOwners(const HopDraw::Piece& piece, int64_t p) {
    found_owners_.clear();
    for (size_t t = 0; t < piece.targets; ++t) {
      found_owners_.insert(found_owners_.end(), piece.counts[t],
                           target_owners_[static_cast<size_t>(p * HopDraw::kPiece) + t]);
    }
  }

  const GraphView& view_;
  const NeighborSamplingOptions options_;
  const int threads_;
  HopDraw draw_;
  RowTable table_;
  DisjointRows disjoint_rows_;  // replaces table_ in disjoint samples
  // The next members belong to the current hop.
  std::vector<NodeId> targets_;
  std::vector<uint32_t> target_owners_, found_owners_;
};

// Adds a violation for each of max_nodes and max_edges that is out of range or excluded by other options.
void CheckSampleBudget(const NeighborSamplingOptions& options, Violations& violations) {
  const auto check = [&](const char* field, int64_t bound) {
    if (bound < 0 || bound > spec::kMaxBudget) {
      violations.Add(field, absl::StrCat(bound, " is outside 0..", spec::kMaxBudget, "; 0: no bound"));
    } else if (bound > 0 && options.sampler == spec::SamplerKind::kLabor) {
      violations.Add(field,
                     "is given with sampler labor, which draws any number of a node's edges; accepted: with sampler "
                     "neighbor");
    }
  };
  check("max_nodes", options.max_nodes);
  check("max_edges", options.max_edges);
  if (options.max_nodes > 0 && options.last_hop_apart) {
    violations.Add("max_nodes", "is given with last_hop_apart, whose last hop has no rows; accepted: without");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<NeighborSampler>> NeighborSampler::Create(const GraphView& view,
                                                                         NeighborSamplingOptions options, int threads,
                                                                         bool little_memory) {
  Violations violations;
  if (options.fan_outs.empty() || std::ssize(options.fan_outs) > spec::kMaxHops) {
    violations.Add("fan_outs", absl::StrCat(options.fan_outs.size(), " hops are outside 1..", spec::kMaxHops));
  }
  for (const int64_t fan_out : options.fan_outs) {
    if (spec::IsFanOut(fan_out)) continue;
    violations.Add("fan_outs", absl::StrCat(fan_out, " is neither ", spec::kAllNeighbors,
                                            " (all neighbours) nor within 1..", spec::kMaxFanOut));
  }
  if (options.weighted && view.in.weights.size() != view.in.neighbors.size()) {
    violations.Add("weighted", "true, but the graph's edges have no weights");
  }
  if (const auto conflict = spec::FindDrawConflict(options)) violations.Add(conflict->field, conflict->description);
  if (options.temporal != spec::TemporalSampling::kNone) {
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
  return std::make_unique<Sampler>(view, std::move(options), threads, little_memory);
}

int64_t FanOutWithin(std::vector<int64_t>& most, int64_t left, int64_t fan_out) {
  // Targets with few edges draw all of them, and the remaining targets share the rest equally.
  std::ranges::sort(most);
  for (size_t i = 0; i < most.size(); ++i) {
    const int64_t share = left / static_cast<int64_t>(most.size() - i);
    if (most[i] > share) return share;
    left -= most[i];
  }
  return fan_out;
}

}  // namespace permafrost::data
