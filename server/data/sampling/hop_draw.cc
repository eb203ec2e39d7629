#include "data/sampling/hop_draw.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/random.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/neighbor_sampler.h"

namespace permafrost::data {
namespace {

// Targets ahead whose offsets are asked for.
constexpr size_t kTargetsAhead = 24;
// The part asked for of a list that is taken whole; the processor sees by itself where a longer one goes on.
constexpr uint64_t kPrefetchedOfAll = 256;

}  // namespace

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
    // The draws to come: they depend on nothing that is not known yet.
    for (const uint64_t place : DrawPlaces(i, extent, reads, worker, 0)) {
      advisor.Request(view_.in.neighbors.Reads(place, place + 1));
    }
  }
  advisor.Flush();
}

// Returns the places of the edges drawn for target `i`, written to the worker's from `at` on. Touches what it reads.
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

// LABOR-0: an edge is taken where its source's number of this hop, which all targets share, is within the target's
// chance.
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

// Places first, all asked for, then read: in loops as short as can be, so that the processor has the reads of many
// targets on their way at once.
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

// Returns how many edges are taken of a target that is taken whole, and asks for them.
size_t HopDraw::TakeWhole(Adjacency::Extent extent, AdjacencyReads& reads) const {
  if (extent.size() == 0 || !reads.Touch(extent.begin, extent.end)) return 0;
  reads.PrefetchNeighbors({extent.begin, std::min(extent.end, extent.begin + kPrefetchedOfAll)});
  return static_cast<size_t>(extent.size());
}

// Returns how many edges are drawn for target `i`, which has some and is not taken whole; asks for them, and writes
// their places to the worker's from `at` on.
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

// Neighbours of the targets, as they stand; what is no row is replaced by the target afterwards, so that the loops that
// wait for memory do nothing else.
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

// Writes where the edges of a piece are among the columns.
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

}  // namespace permafrost::data
