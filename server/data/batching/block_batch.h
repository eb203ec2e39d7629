// Sampled subgraphs as padded batches. Every size is rounded up to one of a few rungs, which are fixed before the
// first step.
// In the padded form node rows lie in segments, one for each hop (seeds, hop 1, ...). Each segment holds its real
// rows first. Padding rows have no in-edges, features and positions of 0, and labels of NaN. After the real edges,
// every entry of `sources` is the number of the last row. No row's offsets reach these entries.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/buffer.h"
#include "base/step.h"
#include "data/rows/row_cache.h"
#include "data/sampling/neighbor_sampler.h"
#include "data/sampling/page_advisor.h"
#include "data/store/edge_rows.h"
#include "data/store/graph.h"

namespace permafrost::data {

// The sizes of one subgraph, or of the buffers for one. If the last hop is kept apart (Options::sampling), its nodes
// and edges are not counted.
struct BlockSizes {
  std::vector<int64_t> nodes;  // [hops + 1] rows in each segment: seeds, nodes first found in hop 1, ...
  int64_t edges = 0;
  // For sparse features: the number of their entries. For means that are computed elsewhere: the number of entries in
  // the lists of neighbours. Otherwise 0.
  int64_t nonzeros = 0;
  bool operator==(const BlockSizes&) const = default;
  int64_t total_nodes() const;
  // Returns whether a subgraph with the sizes `other` fits into buffers of these sizes.
  bool Holds(const BlockSizes& other) const;
  // Returns the key of the graph cache: (all rows, edges, seed rows).
  BatchShape shape() const { return {total_nodes(), edges, nodes.front()}; }
};

// Returns the sizes of a subgraph as it was sampled. `nonzeros` counts the entries of its sparse rows or, with
// `means_elsewhere`, of its lists of neighbours. Errors: DataLoss.
absl::StatusOr<BlockSizes> SizesOf(const SampledSubgraph& subgraph, const GraphView& view,
                                   bool means_elsewhere = false);

struct BlockBatch {
  BlockSizes real, padded;
  BatchShape real_shape() const { return real.shape(); }
  // Dense features as float32, row-major [padded nodes, width]. With means, they are [padded nodes, 2 * width]: the
  // mean of the row's neighbours, then the row's own features. Empty if features are sparse: feature_offsets,
  // feature_columns and feature_values then hold them as CSR.
  AlignedVector<float> features;
  // [padded nodes] the node of each row. Used instead of `features`, which is then empty, if dense features lie
  // elsewhere (Options::features_elsewhere). Padding entries hold the graph's number of nodes, which is the number of
  // the row of zeros.
  AlignedVector<int64_t> feature_rows;
  // [padded nonzeros] the lists of each row's neighbours, including neighbours in the last hop, numbered as in
  // feature_rows. Used if means are computed elsewhere. The neighbours of row r are at feature_offsets[r] up to
  // feature_offsets[r + 1]. Padding entries hold the number of the row of zeros, and no list reaches them.
  AlignedVector<NodeId> neighbors;
  AlignedVector<int64_t> feature_offsets;  // [padded nodes + 1]
  AlignedVector<int64_t> feature_columns;  // [padded nonzeros]; padding is 0, and no row's offsets reach it
  AlignedVector<float> feature_values;     // [padded nonzeros], or empty if all values are 1
  AlignedVector<float> positions;          // [padded nodes, columns], or empty
  // CSR offsets of the in-edges, as in SampledSubgraph. There is one offset for each padded row of all segments
  // except the last, and one more for the end.
  AlignedVector<int64_t> offsets;
  AlignedVector<int64_t> sources;     // [padded edges]
  AlignedVector<float> edge_weights;  // [padded edges], 0 in padding; empty if weights are not read
  // The widths of the row that batches carry for each edge (EdgeRows). At most one width is above 0: edge_ints is
  // [padded edges, edge_int_columns], or edge_floats is [padded edges, edge_float_columns]. Padding is 0.
  int64_t edge_int_columns = 0, edge_float_columns = 0;
  AlignedVector<int64_t> edge_ints;
  AlignedVector<float> edge_floats;
  AlignedVector<float> labels;  // [padded seeds, targets], NaN where missing
  std::vector<NodeId> nodes;    // the node of each real row, in the order of the segments
  int64_t real_seeds = 0;
};

// Makes an artificial block of exactly this shape, on which a step is recorded. The seeds come first, then the other
// real rows, then one padding row. Features repeat the rows of `from`, whose last row must be its only padding row.
// Labels repeat the labels of labelled seeds. Edges are drawn by `seed`, and none is a self-loop if there are at
// least two real rows.
// `shape` must have at least one seed, and more nodes than seeds. `from` must have at least one node. `weighted` says
// whether edges have weights.
BlockBatch ComposeBlock(const BlockBatch& from, const BatchShape& shape, uint64_t seed, bool weighted);

// Samples subgraphs, and gathers and pads their batches. Threads: one at a time. Keeps the graph alive.
class BlockBatcher {
 public:
  struct Options {
    // With sampling.last_hop_apart, features are gathered with means (FeatureGather::Means), and batches have neither
    // rows nor edges of the last hop. This requires dense features, and excludes edge weights and edge features.
    NeighborSamplingOptions sampling;
    bool edge_weights = false;             // whether batches carry edge weights
    EdgeInputs edges = EdgeInputs::kNone;  // what batches carry for each edge; kNone with last_hop_apart
    bool positions = false;                // whether batches carry positions of nodes
    int threads = 1;                       // the number of OpenMP threads within a call
    // The cache that dense features are read from. If it is null, they are read through the mapping.
    std::shared_ptr<RowCache> rows = nullptr;
    // True if the taker of the batches has the dense features itself: a table with one row for each node, followed by
    // a row of zeros. Batches then carry row numbers instead of features. With the last hop apart they also carry,
    // for each row, the numbers of its neighbours. `rows` must be null then.
    bool features_elsewhere = false;

    bool means_elsewhere() const { return features_elsewhere && sampling.last_hop_apart; }
  };
  static absl::StatusOr<std::unique_ptr<BlockBatcher>> Create(std::shared_ptr<const Graph> graph, Options options);
  virtual ~BlockBatcher() = default;

  virtual const Graph& graph() const = 0;
  // Returns the sizes of a subgraph's batch without padding. Errors: DataLoss.
  virtual absl::StatusOr<BlockSizes> SizesOf(const SampledSubgraph& subgraph) const = 0;
  // Returns whether BlockSizes::nonzeros is used.
  virtual bool has_nonzeros() const = 0;
  // Step 1: draws the subgraph of `seeds` (see NeighborSampler::Sample, also for `times`). If `advisor` is not null,
  // requests from it the pages that Gather will read.
  virtual absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, PageAdvisor* advisor,
                              SampledSubgraph& out, std::span<const int64_t> times = {}) = 0;
  // Tells the row cache, if there is one, which rows Gather will need. Call it as soon as a subgraph is sampled.
  virtual RowCache::Announcement Announce(const SampledSubgraph& subgraph) const = 0;
  // Step 2: makes the row cache begin to read the rows that Gather will need. For `must`, `announced` and errors, see
  // RowCache::Pin. Returns an empty lease if there is no cache.
  virtual absl::StatusOr<RowCache::Lease> Lease(const SampledSubgraph& subgraph, bool must,
                                                RowCache::Announcement* announced = nullptr) const = 0;
  // Step 3: gathers the batch of a subgraph at the sizes `padded`, into which the subgraph must fit. Reuses the
  // memory of `out`. `lease` is the lease of this subgraph; if it is null, Gather takes one itself. Errors:
  // InvalidArgument if the subgraph does not fit; DataLoss if the file changed or a block is damaged; those of
  // Lease::Await.
  virtual absl::Status Gather(const SampledSubgraph& subgraph, const BlockSizes& padded, BlockBatch& out,
                              RowCache::Lease* lease = nullptr) = 0;
  // Changes the padded sizes of a gathered batch. Errors: InvalidArgument if the batch does not fit.
  virtual absl::Status Pad(const BlockSizes& padded, BlockBatch& batch) const = 0;
};

}  // namespace permafrost::data
