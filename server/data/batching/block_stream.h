// Batches of sampled blocks, made ready ahead of the step: the sampler runs several batches ahead of the gathering and
// tells the kernel which pages it will read, so that they are there when the gathering comes to them.
// Threads: Next from one thread (the device's); state() is safe anywhere. Owns its thread, which alone uses the batcher
// meanwhile; destruction stops it at once, but for the call of the batcher that it is in.
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

// The sampler that runs ahead, and what it told the kernel.
struct LookAhead {
  int64_t depth = 0;  // batches sampled ahead of the gathering that it may be now
  int64_t ready = 0;  // batches that wait for the step
  int64_t sampled_edges = 0;
  int64_t stalls = 0;  // steps that had to wait for their batch
  PageCounters pages;
  // Set for jobs whose features are not mapped.
  std::optional<RowReading> rows;
  // Batches whose sample would have passed its bound on rows or edges (SampledSubgraph::cut).
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
    // Batches sampled ahead of the gathering, at most, >= 1. The depth in use begins at 2, doubles when a step had to
    // wait while pages were missing, falls by one when all pages are found resident, and never lets more than
    // `budget_bytes` of advice stand open.
    int64_t max_depth = 8;
    uint64_t budget_bytes = uint64_t{256} << 20;
    bool advise = true;
    // True where rows are leased ahead (BlockBatcher::Options::rows). Then all of max_depth is sampled ahead, so that
    // the cache knows what comes; leases reach as far ahead as their rows have room.
    bool leases = false;
    // Subgraphs that were sampled and not gathered yet take about this much at most. One subgraph may always be held.
    uint64_t sampled_bytes = uint64_t{64} << 20;
  };
  struct Request {
    std::span<const NodeId> seeds;  // valid until the next batch is planned
    uint64_t sample = 0;            // as NeighborSampler::Sample
    // Rows of `seeds`, valid as they are: the edges between the two of each pair are taken out.
    SeedPairs excluded = {};
    // As NeighborSampler::Sample, valid while the batch is sampled.
    std::span<const int64_t> times;
  };
  // The batch `index`, 0..count-1; called on this object's thread in order. An error is the batch's.
  using Plan = std::function<absl::StatusOr<Request>(int64_t index)>;
  // The padded sizes to gather a block of these sizes at.
  using Fit = std::function<BlockSizes(const BlockSizes& real)>;

  // Borrows the batcher.
  BlockStream(BlockBatcher& batcher, int64_t count, Plan plan, Fit fit, const Options& options);
  ~BlockStream();

  // As BatchRing::Next.
  absl::StatusOr<BlockBatch*> Next();
  LookAhead state() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Returns how many batches to sample ahead from here on. Pure. stalled: a step waited for its batch since the last
// decision. resident: part of the pages wanted that were found in memory, 0..1. bytes_per_batch: the mean bytes of
// advice.
int64_t NextDepth(int64_t depth, bool stalled, double resident, uint64_t bytes_per_batch,
                  const BlockStream::Options& options);

}  // namespace permafrost::data
