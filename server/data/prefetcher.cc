#include "data/prefetcher.h"

#include <algorithm>
#include <exception>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "base/status.h"

namespace permafrost::data {

// A ring of depth + 1 batches: batch i lies in slot i % slots; the one more is the caller's.
struct Prefetcher::Impl {
  Impl(int64_t batches, int64_t depth, Producer fill)
      : count(batches), producer(std::move(fill)), slots(static_cast<size_t>(std::max<int64_t>(depth, 1) + 1)) {}

  PaddedBatch& Slot(int64_t index) { return slots[static_cast<size_t>(index) % slots.size()]; }

  // A batch too large for the memory is this run's error, not the process's end.
  absl::Status Produce(int64_t index) {
    try {
      return producer(index, Slot(index));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(absl::StrCat("batch ", index, ": out of memory"));
    } catch (const std::exception& e) {
      return absl::InternalError(absl::StrCat("batch ", index, ": ", e.what()));
    }
  }

  void Run() {
    for (int64_t index = 0; index < count; ++index) {
      {
        const auto may_fill = [this, index]() ABSL_SHARED_LOCKS_REQUIRED(mu) {
          return stopping || index < released + static_cast<int64_t>(slots.size());
        };
        absl::MutexLock lock(&mu, absl::Condition(&may_fill));
        if (stopping) return;
      }
      // The slot is this thread's until `produced` passes it.
      absl::Status status = Produce(index);
      absl::MutexLock lock(&mu);
      if (!status.ok()) {
        error = std::move(status);
        return;
      }
      produced = index + 1;
    }
  }

  const int64_t count;
  const Producer producer;
  std::vector<PaddedBatch> slots;
  absl::Mutex mu;
  int64_t produced ABSL_GUARDED_BY(mu) = 0;
  int64_t handed_out ABSL_GUARDED_BY(mu) = 0;
  int64_t released ABSL_GUARDED_BY(mu) = 0;  // batches whose slot may be filled again
  absl::Status error ABSL_GUARDED_BY(mu);
  bool stopping ABSL_GUARDED_BY(mu) = false;
  std::thread thread;
};

Prefetcher::Prefetcher(int64_t count, int64_t depth, Producer producer)
    : impl_(std::make_unique<Impl>(count, depth, std::move(producer))) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->Run(); });
}

Prefetcher::~Prefetcher() {
  {
    absl::MutexLock lock(&impl_->mu);
    impl_->stopping = true;
  }
  impl_->thread.join();
}

absl::StatusOr<PaddedBatch*> Prefetcher::Next() {
  Impl& impl = *impl_;
  absl::MutexLock lock(&impl.mu);
  impl.released = impl.handed_out;
  if (impl.handed_out >= impl.count) return nullptr;
  const auto ready = [&impl]() ABSL_SHARED_LOCKS_REQUIRED(impl.mu) {
    return impl.produced > impl.handed_out || !impl.error.ok();
  };
  impl.mu.Await(absl::Condition(&ready));
  if (impl.produced == impl.handed_out) return impl.error;
  return &impl.Slot(impl.handed_out++);
}

}  // namespace permafrost::data
