// Stores what a run tells, on a thread of its own, so that no step waits for the disk.
// Threads: made and destroyed by the device thread; StoreSoon is safe anywhere.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/monotonic.h"

namespace permafrost::jobs {

class RunWriter {
 public:
  // `store` is called on the new thread, with no patience for a lock of another process; where it fails it is called
  // again a second later. `what` names the run in the log, which hears of the first of several errors in a row.
  // Errors: Unavailable where the system has no thread to give.
  static absl::StatusOr<std::unique_ptr<RunWriter>> Start(std::string what, std::function<absl::Status()> store);
  // Waits for the store that is under way. Requests since then are dropped.
  ~RunWriter();

  // Never waits.
  void StoreSoon() { wake_.Set(); }

 private:
  RunWriter(std::string what, std::function<absl::Status()> store) : what_(std::move(what)), store_(std::move(store)) {}
  void Loop();

  const std::string what_;
  const std::function<absl::Status()> store_;
  Event wake_, stop_;
  std::thread thread_;
};

}  // namespace permafrost::jobs
