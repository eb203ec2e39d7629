// Prepares batches on another thread, through a ring, ahead of the step.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::data {

// A ring of batches that one thread fills ahead of another that takes them, in order.
// Threads: the producer's methods from one thread, Next from another; the rest is safe anywhere. Owns the batches.
template <class Batch>
class BatchRing {
 public:
  // `count`: batches in all. `depth`: how many may wait for the taker, >= 1; one more is the taker's.
  BatchRing(int64_t count, int64_t depth)
      : count_(count), slots_(static_cast<size_t>(std::max<int64_t>(depth, 1) + 1)) {}

  // The taker. The next batch, the caller's until the following call; nullptr after the last one. An error of the
  // producer is returned in its place and again on every later call.
  absl::StatusOr<Batch*> Next() {
    absl::MutexLock lock(&mu_);
    released_ = taken_;
    if (taken_ >= count_) return nullptr;
    const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return filled_ > taken_ || !error_.ok(); };
    if (!ready()) {
      ++stalls_;
      mu_.Await(absl::Condition(&ready));
    }
    if (filled_ == taken_) return error_;
    return &SlotOf(taken_++);
  }

  // The producer: fills Slot() once there is room, then calls Filled(), `count` times; or ends with Fail().
  struct State {
    bool has_room = false;  // for one more batch
    bool starved = false;   // the taker has every batch that was filled
    bool stopped = false;
    int64_t stalls = 0;
  };
  State state() const {
    absl::MutexLock lock(&mu_);
    return {.has_room = HasRoom(), .starved = filled_ == taken_, .stopped = stopped_, .stalls = stalls_};
  }
  // False once stopped.
  bool AwaitRoom() {
    const auto may_move = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopped_ || HasRoom(); };
    const absl::MutexLock lock(&mu_, absl::Condition(&may_move));
    return !stopped_;
  }
  // The producer's from AwaitRoom to Filled.
  Batch& Slot() { return SlotOf(next_); }
  void Filled() {
    ++next_;
    absl::MutexLock lock(&mu_);
    filled_ = next_;
  }
  void Fail(absl::Status error) {
    absl::MutexLock lock(&mu_);
    error_ = std::move(error);
  }
  // Batches filled so far.
  int64_t filled() const { return next_; }

  // Tells the producer to end.
  void Stop() {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }
  int64_t count() const { return count_; }
  // Batches that wait for the taker.
  int64_t ready() const {
    absl::MutexLock lock(&mu_);
    return filled_ - taken_;
  }
  // Returns how often the taker had to wait.
  int64_t stalls() const {
    absl::MutexLock lock(&mu_);
    return stalls_;
  }

 private:
  // Batch i lies in slot i % slots; it is the producer's until `filled_` passes i, the taker's until `released_` does.
  Batch& SlotOf(int64_t index) { return slots_[static_cast<size_t>(index) % slots_.size()]; }
  bool HasRoom() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return filled_ < released_ + static_cast<int64_t>(slots_.size());
  }

  const int64_t count_;
  std::vector<Batch> slots_;
  int64_t next_ = 0;  // filled_, as the producer alone reads it
  mutable absl::Mutex mu_;
  int64_t filled_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t released_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t stalls_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

// Prepares the next batches on another thread. Threads: Next from one thread (the device's). Owns its thread;
// destruction stops it as soon as the batch in the making is done.
template <class Batch>
class Prefetcher {
 public:
  // Fills batch `index`; called on the prefetch thread in order 0..count-1. An exception is an error of its batch: one
  // too large for the memory ends the run and not the process.
  using Producer = std::function<absl::Status(int64_t index, Batch& out)>;

  // `depth`: batches ready ahead, >= 1.
  Prefetcher(int64_t count, int64_t depth, Producer producer)
      : ring_(count, depth), producer_(std::move(producer)), thread_([this] { Run(); }) {}
  ~Prefetcher() {
    ring_.Stop();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // As BatchRing::Next.
  absl::StatusOr<Batch*> Next() { return ring_.Next(); }

 private:
  void Run() {
    for (int64_t index = 0; index < ring_.count() && ring_.AwaitRoom(); ++index) {
      const absl::Status status =
          WithoutThrowing(StdView(absl::StrCat("batch ", index)), [&] { return producer_(index, ring_.Slot()); });
      if (!status.ok()) return ring_.Fail(status);
      ring_.Filled();
    }
  }

  BatchRing<Batch> ring_;
  const Producer producer_;
  std::thread thread_;
};

}  // namespace permafrost::data
