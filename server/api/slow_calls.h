// Calls that read whole stores: each has a thread of its own, so that gRPC's never wait for a disk, and there are few
// at a time.
#pragma once

#include <exception>
#include <memory>
#include <new>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"

namespace permafrost::api {

// Calls `body`, which returns a Status or a StatusOr, on a thread of its own: what it throws (for want of memory above
// all) fails the call, not the process.
template <class Body>
auto WithoutThrowing(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("the call needs more memory than the server can get");
  } catch (const std::exception& e) {
    return absl::InternalError(e.what());
  }
}

// Threads: all methods are safe anywhere. Outlives the slots it gave.
class SlowCalls {
 public:
  // Each takes a core and as much of the disk as it can get from a job that trains.
  static constexpr int kMost = 4;

  // Given back when destroyed.
  class Slot {
   public:
    explicit Slot(SlowCalls& calls) : calls_(calls) {}
    Slot(const Slot&) = delete;
    Slot& operator=(const Slot&) = delete;
    ~Slot();

   private:
    SlowCalls& calls_;
  };
  // ResourceExhausted (reason TOO_MANY_SLOW_CALLS) while kMost are taken.
  absl::StatusOr<std::unique_ptr<Slot>> Take();

 private:
  absl::Mutex mu_;
  int taken_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace permafrost::api
