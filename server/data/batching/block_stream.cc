#include "data/batching/block_stream.h"

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <new>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"

namespace permafrost::data {
namespace {

constexpr int64_t kFirstDepth = 2;
// Gathered batches that may wait for the step.
constexpr int64_t kMaxReady = 2;
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
  // A ring: gathered batches that wait, and the one that the caller has.
  static constexpr int64_t kSlots = kMaxReady + 1;

  Impl(BlockBatcher& of, int64_t batches, Plan make_plan, Fit make_fit, const Options& how)
      : batcher(of),
        count(batches),
        plan(std::move(make_plan)),
        fit(std::move(make_fit)),
        options(how),
        advisor({.enabled = how.advise}) {}

  BlockBatch& Slot(int64_t index) { return slots[static_cast<size_t>(index % kSlots)]; }

  absl::Status SampleNext() {
    SampledSubgraph subgraph;
    if (!spare.empty()) {
      subgraph = std::move(spare.back());
      spare.pop_back();
    }
    const Request request = plan(sampled);
    advisor.BeginBudget(options.budget_bytes / static_cast<uint64_t>(Depth()));
    PF_RETURN_IF_ERROR(batcher.Sample(request.seeds, request.stream, &advisor, subgraph));
    ++sampled;
    Adapt(static_cast<int64_t>(subgraph.sources.size()));
    waiting.push_back(std::move(subgraph));
    return absl::OkStatus();
  }

  int64_t Depth() {
    absl::MutexLock lock(&mu);
    return state.depth;
  }

  // Once a batch sampled.
  void Adapt(int64_t edges) {
    const PageCounters now = advisor.counters();
    const int64_t looked_at = now.sampled_pages - before.sampled_pages;
    const double resident =
        looked_at > 0 ? static_cast<double>(now.resident_pages - before.resident_pages) / static_cast<double>(looked_at)
                      : 1;
    const auto bytes = static_cast<uint64_t>(now.advised_bytes - before.advised_bytes);
    before = now;
    absl::MutexLock lock(&mu);
    state.sampled_edges += edges;
    state.pages = now;
    state.depth = NextDepth(state.depth, std::exchange(stalled, false), resident, bytes, options);
  }

  absl::Status GatherNext() {
    SampledSubgraph subgraph = std::move(waiting.front());
    waiting.pop_front();
    PF_ASSIGN_OR_RETURN(const BlockSizes real, SizesOf(subgraph, batcher.graph().view()));
    PF_RETURN_IF_ERROR(batcher.Gather(subgraph, fit(real), Slot(next_gather)));
    ++next_gather;
    spare.push_back(std::move(subgraph));
    return absl::OkStatus();
  }

  // A batch too large for the memory is this run's error, not the process's end.
  template <class Step>
  static absl::Status Guard(int64_t batch, Step step) {
    try {
      return step();
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat("batch ", batch, ": out of memory"));
    } catch (const std::exception& e) {
      return absl::InternalError(absl::StrCat("batch ", batch, ": ", e.what()));
    }
  }

  enum class Move { kSample, kGather, kStop };
  // Sampling goes first, as far ahead as it may, unless the step waits.
  Move NextMove() {
    const auto ahead = static_cast<int64_t>(waiting.size());
    absl::MutexLock lock(&mu);
    const auto may_sample = [this, ahead]() ABSL_SHARED_LOCKS_REQUIRED(mu) {
      return sampled < count && sampling_error.ok() && (ahead == 0 || ahead < state.depth);
    };
    const auto may_gather = [this, ahead]()
                                ABSL_SHARED_LOCKS_REQUIRED(mu) { return ahead > 0 && next_gather < released + kSlots; };
    const auto may_move = [&]() ABSL_SHARED_LOCKS_REQUIRED(mu) { return stopping || may_sample() || may_gather(); };
    mu.Await(absl::Condition(&may_move));
    if (stopping) return Move::kStop;
    const bool step_waits = next_gather == handed_out;
    if (may_gather() && (step_waits || !may_sample())) return Move::kGather;
    return Move::kSample;
  }

  void Run() {
    while (next_gather < count) {
      const Move move = NextMove();
      if (move == Move::kStop) return;
      absl::Status status;
      if (move == Move::kSample) {
        // Those sampled before it come first.
        sampling_error = Guard(sampled, [this] { return SampleNext(); });
      } else {
        status = Guard(next_gather, [this] { return GatherNext(); });
      }
      if (status.ok() && waiting.empty()) status = sampling_error;
      absl::MutexLock lock(&mu);
      gathered = next_gather;
      if (!status.ok()) {
        error = status;
        return;
      }
      state.ready = gathered - handed_out;
    }
  }

  BlockBatcher& batcher;
  const int64_t count;
  const Plan plan;
  const Fit fit;
  const Options options;

  // Of the stream's thread.
  PageAdvisor advisor;
  PageCounters before;
  std::deque<SampledSubgraph> waiting;
  std::vector<SampledSubgraph> spare;
  int64_t sampled = 0, next_gather = 0;
  absl::Status sampling_error;
  std::array<BlockBatch, kSlots> slots;  // slot i % kSlots is this thread's until `gathered` passes i

  mutable absl::Mutex mu;
  int64_t gathered ABSL_GUARDED_BY(mu) = 0;  // next_gather, as the step may see it
  int64_t handed_out ABSL_GUARDED_BY(mu) = 0;
  int64_t released ABSL_GUARDED_BY(mu) = 0;  // batches whose slot may be filled again
  bool stalled ABSL_GUARDED_BY(mu) = false;
  bool stopping ABSL_GUARDED_BY(mu) = false;
  absl::Status error ABSL_GUARDED_BY(mu);
  LookAhead state ABSL_GUARDED_BY(mu);
  std::thread thread;
};

BlockStream::BlockStream(BlockBatcher& batcher, int64_t count, Plan plan, Fit fit, const Options& options)
    : impl_(std::make_unique<Impl>(batcher, count, std::move(plan), std::move(fit), options)) {
  {
    absl::MutexLock lock(&impl_->mu);
    impl_->state.depth = std::clamp<int64_t>(kFirstDepth, 1, std::max<int64_t>(1, options.max_depth));
  }
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

BlockStream::~BlockStream() {
  {
    absl::MutexLock lock(&impl_->mu);
    impl_->stopping = true;
  }
  impl_->thread.join();
}

absl::StatusOr<BlockBatch*> BlockStream::Next() {
  Impl& impl = *impl_;
  absl::MutexLock lock(&impl.mu);
  impl.released = impl.handed_out;
  if (impl.handed_out >= impl.count) return nullptr;
  const auto ready = [&impl]() ABSL_SHARED_LOCKS_REQUIRED(impl.mu) {
    return impl.gathered > impl.handed_out || !impl.error.ok();
  };
  if (!ready()) {
    ++impl.state.stalls;
    impl.stalled = true;
    impl.mu.Await(absl::Condition(&ready));
  }
  if (impl.gathered == impl.handed_out) return impl.error;
  BlockBatch* batch = &impl.Slot(impl.handed_out++);
  impl.state.ready = impl.gathered - impl.handed_out;
  return batch;
}

LookAhead BlockStream::state() const {
  absl::MutexLock lock(&impl_->mu);
  return impl_->state;
}

}  // namespace permafrost::data
