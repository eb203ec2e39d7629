// A few threads for work that may block, on the disk or on a lock that is held while the disk is written.
// Threads: all methods are safe anywhere.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace permafrost {

class WorkPool {
 public:
  // At most `most_waiting` pieces of work can wait for a thread.
  WorkPool(int threads, size_t most_waiting);
  // Runs all work that is still queued, and then ends the threads.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Queues `work`; the queue is first in, first out. Returns false, and drops `work`, if too much work is waiting
  // already. `work` must not throw.
  bool Post(std::function<void()> work);
  size_t most_waiting() const { return most_waiting_; }

 private:
  void Run();

  const size_t most_waiting_;
  absl::Mutex mu_;
  std::deque<std::function<void()>> work_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace permafrost
