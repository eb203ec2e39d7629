// Draws the edges of one hop of a sample: for pieces of its targets at a time, so that what many of them read is on its
// way from memory at once.
// Threads: Begin, FanOutLeft and Request one at a time; between two Begin, Draw of different pieces by different
// workers at once.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "data/sampling/adjacency_reads.h"
#include "data/sampling/edge_draw.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/sampling/page_advisor.h"
#include "data/store/graph.h"

namespace permafrost::data {

// Sets no value that is written anyway.
template <class T>
void Enlarge(std::vector<T>& values, size_t size) {
  if (values.size() < size) values.resize(size);
}

class HopDraw {
 public:
  // Targets that one thread draws for at a time.
  static constexpr int64_t kPiece = 64;

  // Borrowed until the next Begin.
  struct Hop {
    std::span<const NodeId> targets;
    std::span<const uint32_t> owners;  // of disjoint samples: the seed of each target
    std::span<const int64_t> times;    // of temporal samples, of each seed; empty: every edge may be drawn
    int64_t fan_out = 0;
    bool of_all = false;  // whether a budget left so many of kAllNeighbors: distinct ones, each as likely
    uint64_t key = 0;
    bool with_edge_places = false;
  };
  // The edges drawn for up to kPiece targets. Its vectors are as large as they ever had to be.
  struct Piece {
    size_t targets = 0, edges = 0;
    std::array<size_t, kPiece> counts{};  // edges of each target
    std::vector<NodeId> found;
    std::vector<uint64_t> found_places;
  };

  // Borrows both.
  HopDraw(const GraphView& view, const NeighborSamplingOptions& options, int threads);

  // Returns what each target draws at most, so that `drawn` edges and theirs are within max_edges: `fan_out`, or less
  // where the targets have more edges than that leaves room for. It depends on the sample so far alone.
  int64_t FanOutLeft(std::span<const NodeId> targets, int64_t fan_out, int64_t drawn, ReadFaults& faults);

  void Begin(const Hop& hop);
  int64_t pieces() const { return (std::ssize(hop_.targets) + kPiece - 1) / kPiece; }
  // Asks for the pages of the targets' edges, as far as they will be read.
  void Request(PageAdvisor& advisor, ReadFaults& faults);
  // Piece `p` of the targets, by worker 0..threads - 1.
  void Draw(int64_t p, int worker, ReadFaults& faults);
  // The edges drawn for piece `p`.
  const Piece& piece(int64_t p) const { return pieces_[static_cast<size_t>(p)]; }

 private:
  struct Worker {
    EdgeDraw draw;
    TemporalDraw temporal;
    // Serves hops that are `of_all`.
    EdgeDraw distinct;
    TemporalDraw temporal_distinct;
    // The extents belong to the targets of a piece; the places to the edges drawn, in order, without those of targets
    // that are taken whole.
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
  std::vector<int64_t> degrees_;  // as far as the hop draws of them
  Hop hop_;
  uint64_t most_whole_ = 0;  // the hop takes all edges of a target that has so many at most
};

}  // namespace permafrost::data
