// The thread that does what time alone asks for: limits that pass, waits that end.
// Threads: made and destroyed by one thread.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "base/monotonic.h"

namespace permafrost::jobs {

class Caretaker {
 public:
  // Calls `work` each `every` from Start on, until it is destroyed. By a clock that nobody sets.
  Caretaker(absl::Duration every, std::function<void()> work) : every_(every), work_(std::move(work)) {}
  ~Caretaker();

  // Nothing if it was started before.
  void Start();

 private:
  const absl::Duration every_;
  const std::function<void()> work_;
  Event stop_;
  std::thread thread_;
};

}  // namespace permafrost::jobs
