// Prepares the next batches on another thread.
// Threads: Next from one thread (the device's). Owns its thread; destruction stops it at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

namespace permafrost::data {

template <class Batch>
class Prefetcher {
 public:
  // Fills batch `index`; called on the prefetch thread in order 0..count-1.
  using Producer = std::function<absl::Status(int64_t index, Batch& out)>;

  // `depth`: batches ready ahead, >= 1.
  Prefetcher(int64_t count, int64_t depth, Producer producer)
      : count_(count), producer_(std::move(producer)), slots_(static_cast<size_t>(std::max<int64_t>(depth, 1) + 1)) {
    thread_ = std::thread([this] { Run(); });
  }
  ~Prefetcher() {
    {
      absl::MutexLock lock(&mu_);
      stopping_ = true;
    }
    thread_.join();
  }
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // The next batch, the caller's until the following call; nullptr after the last one. An error of the producer is
  // returned in its place and again on every later call.
  absl::StatusOr<Batch*> Next() {
    absl::MutexLock lock(&mu_);
    released_ = handed_out_;
    if (handed_out_ >= count_) return nullptr;
    const auto ready = [this]() ABSL_SHARED_LOCKS_REQUIRED(mu_) { return produced_ > handed_out_ || !error_.ok(); };
    mu_.Await(absl::Condition(&ready));
    if (produced_ == handed_out_) return error_;
    return &Slot(handed_out_++);
  }

 private:
  // A ring of depth + 1 batches: batch i lies in slot i % slots; the one more is the caller's.
  Batch& Slot(int64_t index) { return slots_[static_cast<size_t>(index) % slots_.size()]; }

  // A batch too large for the memory is this run's error, not the process's end.
  absl::Status Produce(int64_t index) {
    try {
      return producer_(index, Slot(index));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat("batch ", index, ": out of memory"));
    } catch (const std::exception& e) {
      return absl::InternalError(absl::StrCat("batch ", index, ": ", e.what()));
    }
  }

  void Run() {
    for (int64_t index = 0; index < count_; ++index) {
      {
        const auto may_fill = [this, index]() ABSL_SHARED_LOCKS_REQUIRED(mu_) {
          return stopping_ || index < released_ + static_cast<int64_t>(slots_.size());
        };
        absl::MutexLock lock(&mu_, absl::Condition(&may_fill));
        if (stopping_) return;
      }
      // The slot is this thread's until `produced_` passes it.
      absl::Status status = Produce(index);
      absl::MutexLock lock(&mu_);
      if (!status.ok()) {
        error_ = std::move(status);
        return;
      }
      produced_ = index + 1;
    }
  }

  const int64_t count_;
  const Producer producer_;
  std::vector<Batch> slots_;
  absl::Mutex mu_;
  int64_t produced_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t handed_out_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t released_ ABSL_GUARDED_BY(mu_) = 0;  // batches whose slot may be filled again
  absl::Status error_ ABSL_GUARDED_BY(mu_);
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace permafrost::data
