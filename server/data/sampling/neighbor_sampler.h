// Neighbour sampling over the in-edges of a large graph.
// Stateless: a draw depends only on its key (seed, sample, hop, place of the target among the hop's targets, index of
// the draw), so that equal options and seeds give equal samples on every machine, whatever the number of threads.
// Threads: one at a time, which uses up to `threads` OpenMP threads within a call. Borrows the view.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/sampling/edge_draw.h"
#include "data/store/graph.h"
#include "spec/sampling.h"

namespace permafrost::data {

struct NeighborSamplingOptions {
  // Neighbours drawn of each node found in the hop before; the seeds are hop 0. 1..kMaxHops hops, each kAllNeighbors,
  // which takes every one, or 1..kMaxFanOut.
  std::vector<int64_t> fan_outs;
  // Draw with replacement: always `fan_out` of a node that has any neighbour. Without: min(fan_out, degree) distinct
  // edges.
  bool replace = false;
  // Draw by edge weight; kAllNeighbors takes every edge that has one. With replacement: probability weight / sum.
  // Without: successive draws, as the keys u^(1/w) of Efraimidis and Spirakis 2006 give. An edge of weight 0 (or
  // negative, or NaN) is never drawn.
  bool weighted = false;
  // The last hop's neighbours get no rows: see SampledSubgraph::last_neighbors. At least two hops. Draws are the same.
  bool last_hop_apart = false;
  // Each seed has a subgraph of its own: a node that is drawn for two of them has two rows. kNeighbor only.
  bool disjoint = false;
  // Other than kNone: an edge is drawn only where its timestamp is below the time of the seed whose subgraph it is in.
  // The graph must have timestamps; disjoint must be true; not weighted, and kLast without replacement.
  spec::TemporalSampling temporal = spec::TemporalSampling::kNone;
  // kLabor draws of a node `fan_out` neighbours only in the mean, each of its d edges with the chance fan_out / d: any
  // number of them up to d. Without weights, and without replacement.
  spec::SamplerKind sampler = spec::SamplerKind::kNeighbor;
  // The most rows and edges of a sample, 1..kMaxBudget; 0: no bound. kNeighbor only. Edges: where a hop would draw more
  // than are left, each of its targets draws so many at most that the hop stays within, the same number for all; it may
  // be none. Rows: seeds first, then nodes as they are found; once there are so many, only edges from nodes that have a
  // row are kept, so that max_nodes does not go with last_hop_apart.
  int64_t max_nodes = 0, max_edges = 0;
  uint64_t seed = 0;
  bool operator==(const NeighborSamplingOptions&) const = default;

  // The most edges that a hop draws of one node with `degree` in-edges.
  uint64_t MostDrawn(uint64_t degree, int64_t fan_out) const {
    return sampler == spec::SamplerKind::kLabor ? degree : MaxDrawn(degree, fan_out, replace);
  }
};

// The merged subgraph of a batch of seeds, in PyG's NeighborLoader's sense: neighbours are drawn once of each node,
// when it is first found. `hops` are those whose nodes have rows: all, or all but the last.
struct SampledSubgraph {
  // Rows of the graph: the seeds as given, then the nodes found in hop 1, in hop 2, ..., each once, in the order in
  // which they were found; of disjoint sampling each once for a seed.
  std::vector<NodeId> nodes;
  // [nodes], after disjoint sampling: the seed, by its row, whose subgraph each row is in; no edge leads from one
  // subgraph to another. Else empty.
  std::vector<uint32_t> owners;
  // [hops + 1] how many of `nodes` there are up to each hop: row_ends[0] seeds, row_ends.back() == nodes.size().
  std::vector<int64_t> row_ends;
  // In-edges of the rows 0..row_ends[hops - 1]-1 as CSR over local rows: sources of row r are
  // sources[offsets[r] .. offsets[r + 1]). With the last hop apart the rows go on to row_ends[hops]-1, and those
  // entries of theirs that lie beyond `sources` are last_neighbors. offsets: [rows + 1].
  std::vector<int64_t> offsets;
  std::vector<int64_t> sources;
  // With the last hop apart: nodes of the graph that were drawn in it, each as often as it was drawn; else empty.
  std::vector<NodeId> last_neighbors;
  // [edges] place of each edge among view.in's columns (its weight, timestamp); filled where asked for.
  std::vector<uint64_t> edge_places;
  // True where max_nodes or max_edges left edges out.
  bool cut = false;

  int64_t hops() const { return static_cast<int64_t>(row_ends.size()) - 1; }
  int64_t edges() const { return static_cast<int64_t>(sources.size() + last_neighbors.size()); }
};

class NeighborSampler {
 public:
  // little_memory: keeps no table of all the graph's nodes. Errors: InvalidArgument with violations "fan_outs",
  // "weighted" (the graph has no weights), "last_hop_apart", "temporal" (the graph has no timestamps, or the sample is
  // not disjoint), "max_nodes", "max_edges", and those of FindDrawConflict.
  static absl::StatusOr<std::unique_ptr<NeighborSampler>> Create(const GraphView& view, NeighborSamplingOptions options,
                                                                 int threads, bool little_memory = false);
  virtual ~NeighborSampler() = default;

  // Samples around `seeds` (rows of the graph, distinct unless it is disjoint) into `out`, reusing its memory.
  // `sample`: which of the job's samples this is; equal numbers draw equally. with_edge_places: whether out.edge_places
  // is filled. `advisor`, where given, is asked for the pages of each hop before they are read. times: of temporal
  // sampling, [seeds] the time that each seed's edges lie before; empty: every edge does. Errors: InvalidArgument for a
  // seed that is no row or stands twice, for times that are not [seeds] or not asked for, and with a violation of
  // "max_nodes" for more seeds than that; DataLoss where a touched block is damaged (view's columns tell which).
  virtual absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, bool with_edge_places,
                              class PageAdvisor* advisor, SampledSubgraph& out,
                              std::span<const int64_t> times = {}) = 0;
};

// Fits the draws of a sample to a bound on its rows and edges. Threads: pure functions.

// Returns how many edges each target of a hop may draw, so that all of them draw at most `left`: `fan_out` where that
// is enough for all, else the largest equal number, which may be 0. most: what each target draws at `fan_out`, each >
// 0; it is sorted here.
int64_t FanOutWithin(std::vector<int64_t>& most, int64_t left, int64_t fan_out);

}  // namespace permafrost::data
