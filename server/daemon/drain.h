// The one way in which the daemon ends: a signal or the Drain call asks, main waits and then stops the rooms in order.
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace permafrost {

// Threads: all methods are safe anywhere.
class DrainSignal {
 public:
  // The first reason is kept. Never blocks.
  void Request(std::string reason);
  // Waits for the first Request; returns its reason.
  std::string Wait();

 private:
  absl::Mutex mu_;
  bool requested_ ABSL_GUARDED_BY(mu_) = false;
  std::string reason_ ABSL_GUARDED_BY(mu_);
};

// Blocks SIGTERM and SIGINT in the calling thread and in those it makes from now on, and ignores SIGPIPE. Before any
// other thread is made, or a signal would reach a thread that dies of it.
void BlockSignals();

// Takes the blocked signals on a thread of its own: the first requests a drain, the second ends the process at once
// with 128 + its number. Owns the thread; borrows the DrainSignal.
class SignalWaiter {
 public:
  explicit SignalWaiter(DrainSignal& drain);
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

 private:
  void Run(DrainSignal& drain);

  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace permafrost
