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
// Gathered batches that may wait for the step.
constexpr int64_t kMaxReady = 2;
// The same limit if memory is short, and rows ahead are worth more than batches.
constexpr int64_t kMaxReadyShort = 1;
// Memory of a sampled subgraph.
uint64_t BytesOf(const SampledSubgraph& subgraph) {
  // An announcement keeps each row and who uses it next.
  constexpr uint64_t kNode = 2 * sizeof(NodeId) + sizeof(UseSlot);
  return (subgraph.nodes.size() + subgraph.last_neighbors.size()) * kNode +
         (subgraph.offsets.size() + subgraph.sources.size()) * sizeof(int64_t) +
         subgraph.edge_places.size() * sizeof(uint64_t);
}

// Beyond this part of pages found in memory, looking farther ahead gains nothing; below the other, it may.
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

  // Has the rows of sampled batches read, in their order, as far as they have room. An error is that of the first one;
  // another batch's is met again when it is the first.
  absl::Status LeaseAhead() {
    if (!options.leases) return absl::OkStatus();
    for (Waiting& batch : waiting) {
      if (batch.lease.valid()) continue;
      // The one that is gathered next must have its rows.
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

  // Called once for each batch sampled. If no pages were asked for, all count as present, and the counters are not
  // read: reading them can take longer than a part of the sampling.
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

  // A batch too large for the memory is this run's error, not the process's end.
  template <class Step>
  static absl::Status RunStep(int64_t batch, const Step& step) {
    return WithoutThrowing(StdView(absl::StrCat("batch ", batch)), step);
  }

  // Its errors are met again by the gathering.
  void TryLeaseAhead() {
    RunStep(ring.filled(), [this] { return LeaseAhead(); }).IgnoreError();
  }

  // Sampling goes first, as far ahead as it may, unless the step waits for what can be gathered at once.
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
        // The batches sampled before it come first.
        sampling_error = RunStep(sampled, [this] { return SampleNext(); });
        TryLeaseAhead();
      } else {
        // The disk works while this waits.
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

  // These belong to the stream's thread.
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
  uint64_t sampled_bytes = 0;  // of those that wait
  bool refused = false;        // a lease, since the last batch was gathered
  int64_t depth = 1;           // batches sampled ahead that it may be now
  int64_t stalls_before = 0;
  absl::Status sampling_error;

  BatchRing<BlockBatch> ring;
  mutable absl::Mutex mu;
  LookAhead shown ABSL_GUARDED_BY(mu);  // but for what the ring knows
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
