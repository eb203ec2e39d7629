// Neighbour sampling over the in-edges of a large graph.
// Stateless: a draw depends only on its key (seed, sample, hop, place of the target among the hop's targets, index of
// the draw). So equal options and seeds give equal samples on every machine, whatever the number of threads.
// Threads: one caller at a time; a call uses up to `threads` OpenMP threads. Borrows the view.
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
  // For each hop, how many neighbours are drawn for each node that was first found in the hop before. The seeds are
  // hop 0. There are 1..kMaxHops hops. Each value is 1..kMaxFanOut, or kAllNeighbors for all neighbours.
  std::vector<int64_t> fan_outs;
  // If true, draws with replacement: each node with at least one neighbour gives exactly `fan_out` edges. If false,
  // each node gives min(fan_out, degree) distinct edges.
  bool replace = false;
  // If true, draws by edge weight. With replacement, an edge has the probability weight / sum of weights. Without
  // replacement, edges are drawn successively, as by the keys u^(1/w) of Efraimidis and Spirakis 2006. An edge whose
  // weight is 0, negative or NaN is never drawn, even for kAllNeighbors.
  bool weighted = false;
  // If true, the last hop's neighbours get no rows (see SampledSubgraph::last_neighbors). The draws do not change.
  // This needs at least two hops.
  bool last_hop_apart = false;
  // If true, each seed has a subgraph of its own, so that a node that is drawn for two seeds has two rows. kNeighbor
  // only.
  bool disjoint = false;
  // Unless this is kNone, an edge is drawn only if its timestamp is below the time of the seed whose subgraph it
  // joins. The graph must then have timestamps, `disjoint` must be true, and `weighted` must be false. With kLast,
  // `replace` must be false too.
  spec::TemporalSampling temporal = spec::TemporalSampling::kNone;
  // kLabor draws each of a node's d in-edges with probability fan_out / d. So it draws `fan_out` edges on average,
  // and at most d. It excludes weights and replacement.
  spec::SamplerKind sampler = spec::SamplerKind::kNeighbor;
  // The most rows (max_nodes) and edges (max_edges) of a sample, 1..kMaxBudget. 0 means no bound. kNeighbor only.
  // If a hop would draw more edges than max_edges leaves, its fan-out is lowered for all its targets alike, to 0 if
  // necessary.
  // Rows go to the seeds first, then to nodes as they are found. Once there are max_nodes rows, an edge is kept only
  // if its source has a row. So max_nodes excludes last_hop_apart, which gives no rows to sources.
  int64_t max_nodes = 0, max_edges = 0;
  uint64_t seed = 0;
  bool operator==(const NeighborSamplingOptions&) const = default;

  // Returns the most edges that a hop draws for one node with `degree` in-edges.
  uint64_t MostDrawn(uint64_t degree, int64_t fan_out) const {
    return sampler == spec::SamplerKind::kLabor ? degree : MaxDrawn(degree, fan_out, replace);
  }
};

// The merged subgraph of a batch of seeds, as in PyG's NeighborLoader: each node's neighbours are drawn once, when
// the node is first found. hops() counts the hops whose nodes have rows: all hops or, with the last hop apart, all
// but the last one.
struct SampledSubgraph {
  // Rows of the graph: the seeds as given, then the nodes first found in hop 1, hop 2 and so on, in the order in
  // which they were found. A node appears once or, after disjoint sampling, once for each seed that found it.
  std::vector<NodeId> nodes;
  // [nodes] After disjoint sampling: for each row, the row of the seed whose subgraph it belongs to. No edge leads
  // from one subgraph to another. Empty after any other sampling.
  std::vector<uint32_t> owners;
  // [hops + 1] row_ends[h] is the number of `nodes` found in hops 0 to h. row_ends[0] is the number of seeds, and
  // row_ends.back() == nodes.size().
  std::vector<int64_t> row_ends;
  // In-edges of rows 0..row_ends[hops - 1]-1 as CSR over local rows. The sources of row r are sources[offsets[r] ..
  // offsets[r + 1]). `offsets` is [rows + 1].
  // With the last hop apart, rows row_ends[hops - 1]..row_ends[hops]-1 have in-edges too. Their offsets count on
  // beyond `sources`: offset sources.size() + i stands for last_neighbors[i].
  std::vector<int64_t> offsets;
  std::vector<int64_t> sources;
  // With the last hop apart, the graph's nodes that were drawn in the last hop. A node is listed each time it was
  // drawn. Otherwise empty.
  std::vector<NodeId> last_neighbors;
  // [edges] The place of each edge in view.in's columns (weights, timestamps). Filled only on request.
  std::vector<uint64_t> edge_places;
  // True if max_nodes or max_edges left edges out.
  bool cut = false;

  int64_t hops() const { return static_cast<int64_t>(row_ends.size()) - 1; }
  int64_t edges() const { return static_cast<int64_t>(sources.size() + last_neighbors.size()); }
};

class NeighborSampler {
 public:
  // With `little_memory`, the sampler keeps no table with an entry for every node of the graph. Errors:
  // InvalidArgument with violations of "fan_outs", "weighted" (the graph has no weights), "last_hop_apart",
  // "temporal" (the graph has no timestamps, or the sample is not disjoint), "max_nodes", "max_edges", and the
  // violations of FindDrawConflict.
  static absl::StatusOr<std::unique_ptr<NeighborSampler>> Create(const GraphView& view, NeighborSamplingOptions options,
                                                                 int threads, bool little_memory = false);
  virtual ~NeighborSampler() = default;

  // Samples around `seeds` into `out`, whose memory it reuses. Seeds are rows of the graph; they must be distinct
  // unless the sample is disjoint. `sample` is the number of this sample within the job; equal numbers give equal
  // draws. `with_edge_places` says whether to fill out.edge_places. If `advisor` is given, each hop requests its
  // pages from the advisor before it reads them. `times` [seeds] is for temporal sampling: all edges in a seed's
  // subgraph must lie before the seed's time. Empty `times` allow every edge.
  // Errors: InvalidArgument if a seed is not a row or occurs twice, if `times` is neither empty nor [seeds], or if
  // `times` is given without temporal sampling; InvalidArgument with the violation "max_nodes" if there are more than
  // max_nodes seeds; DataLoss if a touched block is damaged (the columns' status() tells which).
  virtual absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, bool with_edge_places,
                              class PageAdvisor* advisor, SampledSubgraph& out,
                              std::span<const int64_t> times = {}) = 0;
};

// Fits the draws of a hop to a bound on the sample's edges.
// Threads: pure functions.

// Returns how many edges each target of a hop may draw so that all targets together draw at most `left` edges. This
// is `fan_out` or, if that is too many, the largest number that fits, which may be 0. `most` holds the number of
// edges, > 0, that each target would draw at `fan_out`. The function sorts `most`.
int64_t FanOutWithin(std::vector<int64_t>& most, int64_t left, int64_t fan_out);

}  // namespace permafrost::data
