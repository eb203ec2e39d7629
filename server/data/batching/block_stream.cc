#include "data/batching/block_stream.h"

#include <algorithm>
#include <deque>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "base/string_view.h"
#include "data/batching/prefetcher.h"

namespace permafrost::data {
namespace {

constexpr int64_t kFirstDepth = 2;
// The number of gathered batches that may wait for the step.
constexpr int64_t kMaxReady = 2;
// Replaces kMaxReady when rows are leased. Memory is short then, and serves better for rows than for gathered
// batches.
constexpr int64_t kMaxReadyShort = 1;
// Returns the memory of a sampled subgraph.
uint64_t BytesOf(const SampledSubgraph& subgraph) {
  // Each node is kept twice: in the subgraph, and in the announcement, which also keeps the slot of the next batch
  // that uses the node.
  constexpr uint64_t kNode = 2 * sizeof(NodeId) + sizeof(UseSlot);
  return (subgraph.nodes.size() + subgraph.last_neighbors.size()) * kNode +
         (subgraph.offsets.size() + subgraph.sources.size()) * sizeof(int64_t) +
         subgraph.edge_places.size() * sizeof(uint64_t);
}

// If at least the share kAllResident of pages is found in memory, sampling farther ahead gains nothing. If less than
// kSomeMissing is found, it may help.
constexpr double kAllResident = 0.98, kSomeMissing = 0.9;

}  // namespace

int64_t NextDepth(int64_t depth, bool stalled, double resident, uint64_t bytes_per_batch,
                  const BlockStream::Options& options) {
  int64_t next = depth;
  if (resident >= kAllResident) {
    next = depth - 1;
  } else if (stalled && resident < kSomeMissing) {
    next = 2 * depth;
  }
  int64_t most = options.max_depth;
  if (bytes_per_batch > 0) most = std::min(most, static_cast<int64_t>(options.budget_bytes / bytes_per_batch));
  return std::clamp<int64_t>(next, 1, std::max<int64_t>(1, most));
}

struct BlockStream::Impl {
  Impl(BlockBatcher& of, int64_t count, Plan make_plan, Fit make_fit, const Options& how)
      : batcher(of),
        plan(std::move(make_plan)),
        fit(std::move(make_fit)),
        options(how),
        advisor({.enabled = how.advise}),
        ring(count, how.leases ? kMaxReadyShort : kMaxReady) {}

  absl::Status SampleNext() {
    SampledSubgraph subgraph;
    if (!spare.empty()) {
      subgraph = std::move(spare.back());
      spare.pop_back();
    }
    PF_ASSIGN_OR_RETURN(const Request request, plan(sampled));
    advisor.BeginBudget(options.budget_bytes / static_cast<uint64_t>(depth));
    PageAdvisor* const asked = advisor.WantsBatch() ? &advisor : nullptr;
    PF_RETURN_IF_ERROR(batcher.Sample(request.seeds, request.sample, asked, subgraph, request.times));
    if (!request.excluded.sources.empty()) ExcludeEdges(request.excluded, subgraph);
    ++sampled;
    Adapt(subgraph, asked != nullptr);
    RowCache::Announcement announced = batcher.Announce(subgraph);
    sampled_bytes += BytesOf(subgraph);
    waiting.push_back({.subgraph = std::move(subgraph), .announced = std::move(announced), .lease = {}});
    return absl::OkStatus();
  }

  // Leases rows for the sampled batches in their order, as far as there is room. Only an error of the first batch is
  // returned. An error of a later batch will occur again once that batch is the first.
  absl::Status LeaseAhead() {
    if (!options.leases) return absl::OkStatus();
    for (Waiting& batch : waiting) {
      if (batch.lease.valid()) continue;
      // The first batch is gathered next, so it must get its rows.
      const bool must = &batch == &waiting.front();
      if (refused && !must) break;
      absl::StatusOr<RowCache::Lease> lease = batcher.Lease(batch.subgraph, must, &batch.announced);
      refused = !lease.ok();
      if (refused && !must) break;
      PF_RETURN_IF_ERROR(lease.status());
      batch.lease = *std::move(lease);
    }
    return absl::OkStatus();
  }

  // Adapts the depth after each sampled batch. If `asked` is false, no pages were requested, and all pages count as
  // present. The counters are not read then, since reading them can take longer than a part of the sampling.
  void Adapt(const SampledSubgraph& subgraph, bool asked) {
    const PageCounters now = asked ? advisor.counters() : before;
    const int64_t looked_at = now.sampled_pages - before.sampled_pages;
    const double resident =
        looked_at > 0 ? static_cast<double>(now.resident_pages - before.resident_pages) / static_cast<double>(looked_at)
                      : 1;
    const auto bytes = static_cast<uint64_t>(now.advised_bytes - before.advised_bytes);
    before = now;
    const int64_t stalls = ring.stalls();
    const bool stalled = std::exchange(stalls_before, stalls) != stalls;
    if (!options.leases) depth = NextDepth(depth, stalled, resident, bytes, options);
    absl::MutexLock lock(&mu);
    shown.sampled_edges += subgraph.edges();
    shown.cut_batches += subgraph.cut ? 1 : 0;
    shown.pages = now;
    shown.depth = depth;
  }

  absl::Status GatherNext() {
    PF_RETURN_IF_ERROR(LeaseAhead());
    Waiting batch = std::move(waiting.front());
    waiting.pop_front();
    PF_ASSIGN_OR_RETURN(const BlockSizes real, batcher.SizesOf(batch.subgraph));
    PF_RETURN_IF_ERROR(batcher.Gather(batch.subgraph, fit(real), ring.Slot(), options.leases ? &batch.lease : nullptr));
    refused = false;
    sampled_bytes -= BytesOf(batch.subgraph);
    spare.push_back(std::move(batch.subgraph));
    return absl::OkStatus();
  }

  // Runs `step` and turns an exception into an error, so that a batch too large for the memory ends the run and not
  // the process.
  template <class Step>
  static absl::Status RunStep(int64_t batch, const Step& step) {
    return WithoutThrowing(StdView(absl::StrCat("batch ", batch)), step);
  }

  // Errors are ignored, since they occur again when the batch is gathered.
  void TryLeaseAhead() {
    RunStep(ring.filled(), [this] { return LeaseAhead(); }).IgnoreError();
  }

  // Returns true if a batch is to be sampled next, false if one is to be gathered. Sampling comes first, up to the
  // depth, unless the step waits for a batch that can be gathered at once.
  bool SamplesNext(const BatchRing<BlockBatch>::State& state) const {
    if (sampled == ring.count() || !sampling_error.ok()) return false;
    if (waiting.empty()) return true;
    if (std::ssize(waiting) >= depth || sampled_bytes >= options.sampled_bytes) return false;
    return !state.has_room || !state.starved || (options.leases && !waiting.front().lease.ready());
  }

  void Run() {
    while (ring.filled() < ring.count()) {
      const auto state = ring.state();
      if (state.stopped) return;
      absl::Status status;
      if (SamplesNext(state)) {
        // A sampling error is reported only after the batches sampled before it were gathered.
        sampling_error = RunStep(sampled, [this] { return SampleNext(); });
        TryLeaseAhead();
      } else {
        // Leases rows first, so that the disk works during the wait.
        TryLeaseAhead();
        if (!ring.AwaitRoom()) return;
        status = RunStep(ring.filled(), [this] { return GatherNext(); });
        if (status.ok()) ring.Filled();
      }
      if (status.ok() && waiting.empty()) status = sampling_error;
      if (!status.ok()) return ring.Fail(status);
    }
  }

  BlockBatcher& batcher;
  const Plan plan;
  const Fit fit;
  const Options options;

  // The members from here to sampling_error belong to the stream's thread.
  PageAdvisor advisor;
  PageCounters before;
  struct Waiting {
    SampledSubgraph subgraph;
    RowCache::Announcement announced;
    RowCache::Lease lease;
  };
  std::deque<Waiting> waiting;
  std::vector<SampledSubgraph> spare;
  int64_t sampled = 0;
  uint64_t sampled_bytes = 0;  // of the subgraphs in `waiting`
  bool refused = false;        // a lease was refused since the last batch was gathered
  int64_t depth = 1;           // the current limit on the batches sampled ahead
  int64_t stalls_before = 0;
  absl::Status sampling_error;

  BatchRing<BlockBatch> ring;
  mutable absl::Mutex mu;
  LookAhead shown ABSL_GUARDED_BY(mu);  // without `ready` and `stalls`, which the ring counts
  std::thread thread;
};

BlockStream::BlockStream(BlockBatcher& batcher, int64_t count, Plan plan, Fit fit, const Options& options)
    : impl_(std::make_unique<Impl>(batcher, count, std::move(plan), std::move(fit), options)) {
  impl_->depth =
      std::clamp<int64_t>(options.leases ? options.max_depth : kFirstDepth, 1, std::max<int64_t>(1, options.max_depth));
  {
    absl::MutexLock lock(&impl_->mu);
    impl_->shown.depth = impl_->depth;
  }
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

BlockStream::~BlockStream() {
  impl_->ring.Stop();
  impl_->thread.join();
}

absl::StatusOr<BlockBatch*> BlockStream::Next() { return impl_->ring.Next(); }

LookAhead BlockStream::state() const {
  LookAhead state;
  {
    absl::MutexLock lock(&impl_->mu);
    state = impl_->shown;
  }
  state.ready = impl_->ring.ready();
  state.stalls = impl_->ring.stalls();
  return state;
}

}  // namespace permafrost::data
