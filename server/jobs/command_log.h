// The graph cache commands of a job that has not ended, as the store has them, and who waits for their effect.
// Threads: all methods are safe anywhere; the lock is held for copies only.
// Invariant: sequences rise, and so do steps; a command without a step has none with a step after it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "graphcache/command.h"
#include "graphcache/snapshot.h"

namespace permafrost::jobs {

class CommandLog {
 public:
  // Told what became of a command: JobManager::CommandGraphCache.
  using Done = std::function<void(absl::StatusOr<graphcache::Snapshot>)>;

  // `spec`: the options that the job began with.
  CommandLog(const spec::PolicyOptions& spec, std::vector<graphcache::Command> commands);

  // A new command is checked against this state and put after it. All fields are of one moment.
  struct State {
    spec::PolicyOptions options;  // once all commands have taken effect
    int64_t newest = 0;           // its sequence; 0: there are none
    int64_t last_step = 0;        // the newest that a command has; 0: none has
  };
  State state() const;
  // Returns the commands without a step, in order.
  std::vector<graphcache::Command> Unstamped() const;
  // Sequence of the newest command; 0: there is none. One atomic load: it is asked at every training step.
  int64_t newest() const { return newest_.load(std::memory_order_acquire); }
  // Called in the order of their sequences. TakeWaiting returns `done` (nullptr: nobody waits). False after Close,
  // which drops `done`.
  bool Append(const graphcache::Command& command, Done done);
  // Returns the commands after `after_sequence` that take effect at `step`: first those with that step or an earlier
  // one, then those without one.
  std::vector<graphcache::Command> Due(int64_t after_sequence, int64_t step) const;
  // Gives commands of the log their step.
  void Stamp(const std::vector<graphcache::Command>& stamped);
  // Returns the callers that wait for commands up to `sequence`, in order; each once.
  std::vector<Done> TakeWaiting(int64_t sequence);
  // The run is over, or the next one begins: whoever still waits.
  std::vector<Done> Close();
  void Open();

 private:
  std::atomic<int64_t> newest_;
  mutable absl::Mutex mu_;
  std::vector<graphcache::Command> commands_ ABSL_GUARDED_BY(mu_);
  spec::PolicyOptions options_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<int64_t, Done>> waiting_ ABSL_GUARDED_BY(mu_);  // by sequence
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace permafrost::jobs
