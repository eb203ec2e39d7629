// Sampled subgraphs as padded batches: every size rounded up to one of a few rungs, known before the first step.
// The padded form: node rows lie in segments, one a hop (seeds, hop 1, ...), each with its real rows first; padding
// rows have no in-edges, features and positions of 0, and labels of NaN. Sources beyond the real edges are the last
// row, and no row's offsets reach them.
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

// Sizes of one subgraph, or of the room for one. A last hop apart is not counted.
struct BlockSizes {
  std::vector<int64_t> nodes;  // [hops + 1] rows of each segment: the seeds, those first found in hop 1, ...
  int64_t edges = 0;
  // Entries of sparse feature rows, or of the lists of neighbours whose means are made elsewhere; else 0.
  int64_t nonzeros = 0;
  bool operator==(const BlockSizes&) const = default;
  int64_t total_nodes() const;
  // Returns whether a subgraph of `other` fits.
  bool Holds(const BlockSizes& other) const;
  // The key of the graph cache: (all rows, edges, seed rows).
  BatchShape shape() const { return {total_nodes(), edges, nodes.front()}; }
};

// The sizes of a subgraph as it was sampled, with the nonzeros of its rows. means_elsewhere: with the entries of its
// lists of neighbours instead.
// Errors: DataLoss.
absl::StatusOr<BlockSizes> SizesOf(const SampledSubgraph& subgraph, const GraphView& view,
                                   bool means_elsewhere = false);

struct BlockBatch {
  BlockSizes real, padded;
  BatchShape real_shape() const { return real.shape(); }
  // Dense features as float32, row-major [padded nodes, width], or with means [padded nodes, 2 * width]: first the mean
  // of the row's neighbours, then the row itself; or sparse ones as CSR, values empty where all are 1.
  AlignedVector<float> features;
  // Where dense features are elsewhere: [padded nodes] the node of each row, and in padding the number of the graph's
  // nodes, where a row of zeros is. `features` is empty then.
  AlignedVector<int64_t> feature_rows;
  // Where means are made of them there: [padded nonzeros] each row's neighbours, the last hop's too, by the numbers
  // that feature_rows has; feature_offsets are theirs. Padding, which no row reaches, is the row of zeros.
  AlignedVector<NodeId> neighbors;
  AlignedVector<int64_t> feature_offsets;  // [padded nodes + 1]
  AlignedVector<int64_t> feature_columns;  // [padded nonzeros]; padding: 0, which no row reaches
  AlignedVector<float> feature_values;     // [padded nonzeros], or empty
  AlignedVector<float> positions;          // [padded nodes, columns], or empty
  // Rows of all segments but the last, + 1: in-edges as CSR; see SampledSubgraph.
  AlignedVector<int64_t> offsets;
  AlignedVector<int64_t> sources;     // [padded edges]
  AlignedVector<float> edge_weights;  // [padded edges] of a weighted graph, 0 in padding; else empty
  // Not 0 where edges are read: [padded edges, columns] of one of the two, zeros in padding; see EdgeRows.
  int64_t edge_int_columns = 0, edge_float_columns = 0;
  AlignedVector<int64_t> edge_ints;
  AlignedVector<float> edge_floats;
  AlignedVector<float> labels;  // [padded seeds, targets], NaN where missing
  std::vector<NodeId> nodes;    // real rows of the graph, in segments' order, without padding
  int64_t real_seeds = 0;
};

// Makes an artificial block of exactly this shape, on which a step is recorded. The seeds come first, then other real
// rows, then one padding row. Rows repeat those of `from`, whose last row must be its only padding. Labels repeat those
// of labelled seeds. Edges are drawn by `seed`; none is a self-loop if there are two real rows.
// `shape` has at least one seed, and more nodes than seeds. `from` has at least one node. `weighted` tells whether
// edges have weights.
BlockBatch ComposeBlock(const BlockBatch& from, const BatchShape& shape, uint64_t seed, bool weighted);

// Samples, gathers and pads. Threads: one at a time. Keeps the graph alive.
class BlockBatcher {
 public:
  struct Options {
    // sampling.last_hop_apart: features are gathered with means, and neither rows nor edges of the last hop. This takes
    // dense features only, and no edge weights or features.
    NeighborSamplingOptions sampling;
    bool edge_weights = false;             // whether batches carry them
    EdgeInputs edges = EdgeInputs::kNone;  // what they carry of each edge beside; not with the last hop apart
    bool positions = false;                // whether batches carry those of their nodes
    int threads = 1;                       // OpenMP threads within a call
    // The cache that dense features are read from; nullptr: through the mapping.
    std::shared_ptr<RowCache> rows = nullptr;
    // True: dense features lie elsewhere, with a row for each node and a row of zeros after them, and batches carry the
    // numbers of their rows; with the last hop apart also those of each row's neighbours. Such a batcher has no `rows`.
    bool features_elsewhere = false;

    bool means_elsewhere() const { return features_elsewhere && sampling.last_hop_apart; }
  };
  static absl::StatusOr<std::unique_ptr<BlockBatcher>> Create(std::shared_ptr<const Graph> graph, Options options);
  virtual ~BlockBatcher() = default;

  virtual const Graph& graph() const = 0;
  // Returns the sizes at which this gathers a subgraph, without padding. Errors: DataLoss.
  virtual absl::StatusOr<BlockSizes> SizesOf(const SampledSubgraph& subgraph) const = 0;
  // Returns whether sizes have nonzeros.
  virtual bool has_nonzeros() const = 0;
  // Step 1: draws the subgraph of `seeds` (see NeighborSampler::Sample, times too) and asks `advisor` (nullptr: nobody)
  // for the pages that Gather will read.
  virtual absl::Status Sample(std::span<const NodeId> seeds, uint64_t sample, PageAdvisor* advisor,
                              SampledSubgraph& out, std::span<const int64_t> times = {}) = 0;
  // Called as soon as a subgraph is sampled, where there is a row cache: tells it the rows that Gather will need.
  virtual RowCache::Announcement Announce(const SampledSubgraph& subgraph) const = 0;
  // Step 2, where there is a row cache: has the rows read that Gather will need, ahead of it. `must` and `announced`:
  // as RowCache::Pin, whose errors it returns. An empty lease where there is no cache.
  virtual absl::StatusOr<RowCache::Lease> Lease(const SampledSubgraph& subgraph, bool must,
                                                RowCache::Announcement* announced = nullptr) const = 0;
  // Step 3: the batch of a subgraph at `padded`, which holds its sizes. Reuses out's memory. lease: of the same
  // subgraph; nullptr: it takes one of its own. Errors: InvalidArgument if it does not fit; DataLoss if the file
  // changed or a block is damaged; as Lease::Await.
  virtual absl::Status Gather(const SampledSubgraph& subgraph, const BlockSizes& padded, BlockBatch& out,
                              RowCache::Lease* lease = nullptr) = 0;
  // Gives a gathered batch another padded size. InvalidArgument if it does not fit.
  virtual absl::Status Pad(const BlockSizes& padded, BlockBatch& batch) const = 0;
};

}  // namespace permafrost::data
