// A few threads that do what may wait: for a lock that is held while the disk is written, or for the disk itself.
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
  // `most_waiting`: pieces of work that wait for a thread at most.
  WorkPool(int threads, size_t most_waiting);
  // Does what still waits, and ends the threads.
  ~WorkPool();
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // In the order in which it comes. False, and nothing is done: too much waits already. `work` must not throw.
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
