// Prepares batches on another thread ahead of the step, and passes them through a ring.
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

// A ring of batches. One thread, the producer, fills the batches, and another thread, the taker, takes them in order.
// Threads: one thread calls the producer's methods, and another thread calls Next. All other methods are safe
// anywhere. Owns the batches.
template <class Batch>
class BatchRing {
 public:
  // `count` is the number of batches in total. `depth` >= 1 is the number of filled batches that may wait for the
  // taker. The taker holds one more.
  BatchRing(int64_t count, int64_t depth)
      : count_(count), slots_(static_cast<size_t>(std::max<int64_t>(depth, 1) + 1)) {}

  // For the taker: returns the next batch, or null after the last one. The caller may use the batch until it calls
  // Next again. If the producer failed, Next returns its error after the last filled batch, and on every later call.
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

  // The following methods are for the producer. It waits for room, fills Slot() and calls Filled(), `count` times in
  // total. On an error it calls Fail() and ends.
  struct State {
    bool has_room = false;  // one more batch can be filled
    bool starved = false;   // the taker has taken every filled batch
    bool stopped = false;
    int64_t stalls = 0;
  };
  State state() const {
    absl::MutexLock lock(&mu_);
    return {.has_room = HasRoom(), .starved = filled_ == taken_, .stopped = stopped_, .stalls = stalls_};
  }
  // Waits until there is room. Returns false once Stop was called.
  bool AwaitRoom() {
    const auto may_move = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return stopped_ || HasRoom(); };
    const absl::MutexLock lock(&mu_, absl::Condition(&may_move));
    return !stopped_;
  }
  // Returns the batch to fill. It belongs to the producer from AwaitRoom to Filled.
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
  // Returns the number of batches filled so far.
  int64_t filled() const { return next_; }

  // Tells the producer to end.
  void Stop() {
    absl::MutexLock lock(&mu_);
    stopped_ = true;
  }
  int64_t count() const { return count_; }
  // Returns the number of batches that wait for the taker.
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
  // Batch i lies in slot i % slots. It belongs to the producer until `filled_` exceeds i, and then to the taker until
  // `released_` exceeds i.
  Batch& SlotOf(int64_t index) { return slots_[static_cast<size_t>(index) % slots_.size()]; }
  bool HasRoom() const ABSL_SHARED_LOCKS_REQUIRED(mu_) {
    return filled_ < released_ + static_cast<int64_t>(slots_.size());
  }

  const int64_t count_;
  std::vector<Batch> slots_;
  int64_t next_ = 0;  // equal to filled_; only the producer uses it, without a lock
  mutable absl::Mutex mu_;
  int64_t filled_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t taken_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t released_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t stalls_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
};

// Prepares the next batches on another thread. Threads: one thread (the device's) calls Next. Owns its thread.
// Destruction stops the thread as soon as the current batch is done.
template <class Batch>
class Prefetcher {
 public:
  // Fills batch `index`. The prefetch thread calls it with 0..count-1 in order. An exception becomes the error of the
  // batch, so that a batch too large for the memory ends the run but not the process.
  using Producer = std::function<absl::Status(int64_t index, Batch& out)>;

  // `depth` >= 1 is the number of batches that may wait for Next.
  Prefetcher(int64_t count, int64_t depth, Producer producer)
      : ring_(count, depth), producer_(std::move(producer)), thread_([this] { Run(); }) {}
  ~Prefetcher() {
    ring_.Stop();
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // Same as BatchRing::Next.
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
