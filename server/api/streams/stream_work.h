// Work that a stream tells of while it is done: on a thread of its own, so that gRPC's never wait.
// Threads: all methods are safe anywhere.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/change_hub.h"

namespace permafrost::api {

class StreamWork {
 public:
  // Tells how far the work is, and is told whether to go on.
  using OnProgress = std::function<bool(int64_t done, int64_t total)>;
  using Body = std::function<absl::Status(const OnProgress& on_progress)>;

  // what: names the work in errors. `hub` gives notice of progress under `key`, which nothing else has; outlives this.
  // A reader of an outcome sees all that `body` wrote.
  StreamWork(std::string_view what, ChangeHub& hub, std::string key, Body body);
  // Stops the work and waits for it.
  ~StreamWork();

  // Once: subscribes and starts the thread.
  std::unique_ptr<ChangeHub::Subscription> Start(ChangeHub::Listener listener);

  struct State {
    int64_t done = 0, total = 0;
    std::optional<absl::Status> outcome;  // nullopt: it goes on
  };
  State Read();

 private:
  void Run();
  void End(absl::Status outcome);

  const std::string what_;
  ChangeHub& hub_;
  const std::string key_;
  const Body body_;
  absl::Mutex mu_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  State state_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace permafrost::api
