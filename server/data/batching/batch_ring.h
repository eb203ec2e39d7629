// A ring of batches that one thread fills ahead of another that takes them, in order.
// Threads: the producer's methods from one thread, Next from another; the rest is safe anywhere. Owns the batches.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace permafrost::data {

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
  // Times that the taker had to wait.
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

}  // namespace permafrost::data
