// The thread that owns the device. It takes jobs from the book and runs them one at a time.
// Threads: all methods are safe anywhere.
// Invariant: only this thread calls Runner::Run.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/monotonic.h"
#include "data/catalog/catalog.h"
#include "jobs/job_book.h"
#include "jobs/run_context.h"
#include "telemetry/log.h"
#include "train/runner.h"

namespace permafrost::jobs {

class DeviceThread {
 public:
  // Called once, on the device thread, at the first device fault (base/status.h). The book drains by then, so no more
  // jobs are taken. The callback must not block.
  using OnFault = std::function<void(const absl::Status&)>;

  // Borrows everything.
  DeviceThread(JobBook& book, data::Catalog& catalog, train::Runner& runner, const RunMetrics& metrics,
               OnFault on_fault);
  // Waits for the thread. The book must be draining already.
  ~DeviceThread();

  // Starts the thread. Does nothing if it was started before, or if the book drains.
  void Start();
  // If the thread waits for a job, the thread runs `work` before its next job. If the thread runs a job, has not
  // started, or is ending, does not run `work` and returns false. `work` returns its outcome and must not throw. It
  // must end soon once the book drains.
  bool RunWhileIdle(std::function<absl::Status()> work);
  // Runs `work` on the thread before its next job, and waits for it. `work` may take as long as a job does. Until it
  // ends, the thread takes no job and no other work. In the cases in which RunWhileIdle returns false, does not run
  // `work` and returns false. Does the same if another call of RunGuest waits or runs, or if the thread takes a job
  // first.
  bool RunGuest(const std::function<absl::Status()>& work);
  // Returns whether RunGuest would run its work now.
  bool CanTakeGuest() const;
  // Same as RunWhileIdle, but waits until the work has ended.
  bool RunNowIfIdle(const std::function<absl::Status()>& work);
  // Shows what the thread does. Work of RunWhileIdle reports here too.
  DeviceActivityBoard& activity() { return activity_; }
  const DeviceActivityBoard& activity() const { return activity_; }
  // Waits until the thread has ended. It ends only once the book drains.
  void Join();

 private:
  struct Run {
    StartedJob started;
    std::unique_ptr<telemetry::JobLog> log;  // nullptr if it could not be opened
  };

  void Loop();
  // Waits until a job may run, and moves the best one to preparing or recovering. Returns nullopt once the book
  // drains.
  std::optional<StartedJob> TakeNext();
  // Runs the work of calls of RunWhileIdle and RunGuest. If `waits` is false, refuses the work of RunGuest, and
  // accepts no more work from then on.
  void DoIdleWork(bool waits);
  absl::StatusOr<train::RunOutcome> Execute(Run& run);
  // If `status` is the first device fault, drains the book and calls on_fault_, so that nothing more runs on the
  // device.
  void LookForFault(const absl::Status& status);
  // Stores and logs the job's next state. Then answers the callers that wait for the effect of commands to the job's
  // graph cache.
  void Finish(Run& run, const absl::StatusOr<train::RunOutcome>& outcome);
  // Waits a moment before retrying a write that must not be lost. Returns false once the book drains.
  bool WaitToRetry();

  JobBook& book_;
  data::Catalog& catalog_;
  train::Runner& runner_;
  const RunMetrics metrics_;
  const OnFault on_fault_;
  bool faulted_ = false;  // used by the device thread only
  DeviceActivityBoard activity_;
  std::mutex start_mu_;  // guards thread_ in Start and the destructor
  std::thread thread_;
  Event idle_;  // set while the thread has not started or has ended
  mutable absl::Mutex work_mu_;
  bool waits_ ABSL_GUARDED_BY(work_mu_) = false;  // true while the thread waits for a job
  // The work of RunGuest. It stays here until it has ended, or until it is refused because a job came first.
  struct Guest;
  Guest* guest_ ABSL_GUARDED_BY(work_mu_) = nullptr;
  std::vector<std::function<absl::Status()>> work_ ABSL_GUARDED_BY(work_mu_);
};

}  // namespace permafrost::jobs
