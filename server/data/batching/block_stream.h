// Prepares batches of sampled blocks ahead of the step. Sampling runs several batches ahead of gathering. It tells
// the kernel which pages gathering will read, so that the pages are in memory in time.
// Threads: one thread (the device's) calls Next; state() is safe anywhere. Owns its thread. While the thread runs,
// nobody else may use the batcher. Destruction stops the thread as soon as its current call of the batcher returns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "data/batching/block_batch.h"
#include "data/rows/row_cache.h"
#include "data/sampling/link_sampling.h"
#include "data/sampling/page_advisor.h"
#include "spec/field.h"

namespace permafrost::data {

// Counters and current values of a sampler that runs ahead.
struct LookAhead {
  int64_t depth = 0;  // the current limit on the batches that are sampled ahead of gathering
  int64_t ready = 0;  // gathered batches that wait for the step
  int64_t sampled_edges = 0;
  int64_t stalls = 0;  // number of steps that had to wait for their batch
  PageCounters pages;
  // Set only for jobs whose features are not mapped.
  std::optional<RowReading> rows;
  // The number of batches whose sample was cut to its bound on rows or edges (SampledSubgraph::cut).
  int64_t cut_batches = 0;
};

template <class F>
void VisitFields(spec::Options<LookAhead>, F&& f) {
  using L = LookAhead;
  f({.name = "depth"}, &L::depth);
  f({.name = "ready"}, &L::ready);
  f({.name = "sampled_edges"}, &L::sampled_edges);
  f({.name = "stalls"}, &L::stalls);
  f({.name = "pages", .inlined = spec::Inline::kOnWire}, &L::pages);
  f({.name = "features", .stored = "rows"}, &L::rows);
  f({.name = "cut_batches"}, &L::cut_batches);
}

class BlockStream {
 public:
  struct Options {
    // The most batches that are sampled ahead of gathering, >= 1. The depth in use begins at 2. It doubles if a step
    // had to wait while pages were missing, and falls by one if all pages are found in memory.
    int64_t max_depth = 8;
    // The most bytes that the kernel is advised to load for batches that are not gathered yet.
    uint64_t budget_bytes = uint64_t{256} << 20;
    bool advise = true;
    // True if batches lease their rows from a cache (BlockBatcher::Options::rows). Then the depth is always
    // max_depth, so that the cache knows the rows of later batches. Rows are leased for as many of these batches as
    // the cache has room for.
    bool leases = false;
    // An approximate limit on the bytes of the subgraphs that were sampled and not gathered yet. One subgraph is
    // always allowed.
    uint64_t sampled_bytes = uint64_t{64} << 20;
  };
  struct Request {
    std::span<const NodeId> seeds;  // valid until the next batch is planned
    uint64_t sample = 0;            // as for NeighborSampler::Sample
    // Pairs of indices into `seeds`. All edges between the two seeds of a pair are removed from the subgraph. Valid
    // as long as `seeds`.
    SeedPairs excluded = {};
    // Same as for NeighborSampler::Sample. Valid while the batch is sampled.
    std::span<const int64_t> times;
  };
  // Returns the request for batch `index`. The stream's thread calls it with 0..count-1 in order. An error becomes
  // the error of the batch.
  using Plan = std::function<absl::StatusOr<Request>(int64_t index)>;
  // Returns the padded sizes for a block of the sizes `real`.
  using Fit = std::function<BlockSizes(const BlockSizes& real)>;

  // Borrows the batcher.
  BlockStream(BlockBatcher& batcher, int64_t count, Plan plan, Fit fit, const Options& options);
  ~BlockStream();

  // Same as BatchRing::Next.
  absl::StatusOr<BlockBatch*> Next();
  LookAhead state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns the new depth: how many batches to sample ahead from now on. `stalled` is true if a step has waited for its
// batch since the last decision. `resident` is the share, 0..1, of the requested pages that were found in memory.
// `bytes_per_batch` is the mean number of bytes that were advised for a batch. Threads: pure.
int64_t NextDepth(int64_t depth, bool stalled, double resident, uint64_t bytes_per_batch,
                  const BlockStream::Options& options);

}  // namespace permafrost::data
