// The graph cache commands of a running job as the store has them, and who waits for their effect.
// Threads: all methods are safe anywhere; the lock is held for copies only.
// Invariant: sequences rise, and so do steps; a command without a step has none with a step after it.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "graphcache/command.h"
#include "jobs/job_manager.h"

namespace permafrost::jobs {

class CommandLog {
 public:
  using Done = JobManager::CommandDone;

  explicit CommandLog(std::vector<graphcache::Command> commands);

  std::vector<graphcache::Command> commands() const;
  // Sequence of the newest command; 0: there is none. One atomic load: it is asked at every training step.
  int64_t newest() const { return newest_.load(std::memory_order_acquire); }
  // Called in the order of their sequences. `done` is given back by TakeWaiting. False after Close: nobody waits then.
  bool Append(const graphcache::Command& command, Done done);
  // Those after `after_sequence` that take effect at `step`: with that step or an earlier one, then those without one.
  std::vector<graphcache::Command> Due(int64_t after_sequence, int64_t step) const;
  // Gives commands of the log their step.
  void Stamp(const std::vector<graphcache::Command>& stamped);
  // Who waits for commands up to `sequence`, in order; each once.
  std::vector<Done> TakeWaiting(int64_t sequence);
  // The run is over: whoever still waits.
  std::vector<Done> Close();

 private:
  std::atomic<int64_t> newest_;
  mutable absl::Mutex mu_;
  std::vector<graphcache::Command> commands_ ABSL_GUARDED_BY(mu_);
  std::vector<std::pair<int64_t, Done>> waiting_ ABSL_GUARDED_BY(mu_);  // by sequence
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
};

// The options of a job's cache once all of `commands` have taken effect.
graphcache::PolicyOptions OptionsAfter(const graphcache::PolicyOptions& spec,
                                       const std::vector<graphcache::Command>& commands);

}  // namespace permafrost::jobs
