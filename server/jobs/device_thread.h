// The thread that owns the device: takes jobs of the book one at a time and runs them.
// Threads: all methods are safe anywhere. Invariant: it is the only caller of Runner::Run.
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
  // Called once, on the thread, by the first device fault (base/status.h): the book drains by then, and no job is
  // taken any more. It must not block.
  using OnFault = std::function<void(const absl::Status&)>;

  // Borrows everything.
  DeviceThread(JobBook& book, data::Catalog& catalog, train::Runner& runner, const RunMetrics& metrics,
               OnFault on_fault);
  // The book drains already: waits for the thread.
  ~DeviceThread();

  // Does nothing if the thread was started before, or if the book drains.
  void Start();
  // Runs `work` on the thread before its next job, if the thread waits for one. Returns false without running `work` if
  // the thread runs a job, has not begun, or ends. `work` returns its outcome, and must not throw; it ends soon once
  // the book drains.
  bool RunWhileIdle(std::function<absl::Status()> work);
  // Runs `work` in the same way and waits for it, though it may take as long as a job: until it ends, neither a job nor
  // other work is taken. Returns false, too, while such work is there, and if a job is taken first.
  bool RunGuest(const std::function<absl::Status()>& work);
  // Returns whether RunGuest would run work now.
  bool CanTakeGuest() const;
  // As RunWhileIdle, and waits for it.
  bool RunNowIfIdle(const std::function<absl::Status()>& work);
  // Tells what the thread does. Work of RunWhileIdle reports here too.
  DeviceActivityBoard& activity() { return activity_; }
  const DeviceActivityBoard& activity() const { return activity_; }
  // Waits until the thread has ended, which it does only while the book drains.
  void Join();

 private:
  struct Run {
    StartedJob started;
    std::unique_ptr<telemetry::JobLog> log;  // nullptr if it could not be opened
  };

  void Loop();
  // Waits for a job and moves the best one to running; nullopt once draining.
  std::optional<StartedJob> TakeNext();
  // Runs what RunWhileIdle was given; nothing more comes once `waits` is false.
  void DoIdleWork(bool waits);
  absl::StatusOr<train::RunOutcome> Execute(Run& run);
  // If `status` is a device fault, nothing runs on the device from now on.
  void LookForFault(const absl::Status& status);
  // Stores and tells where the job goes, and answers who waits for its commands.
  void Finish(Run& run, const absl::StatusOr<train::RunOutcome>& outcome);
  // Waits a moment before a write is tried again that must not be lost; false once draining.
  bool WaitToRetry();

  JobBook& book_;
  data::Catalog& catalog_;
  train::Runner& runner_;
  const RunMetrics metrics_;
  const OnFault on_fault_;
  bool faulted_ = false;  // the thread's
  DeviceActivityBoard activity_;
  std::mutex start_mu_;  // held by Start and the destructor for thread_
  std::thread thread_;
  Event idle_;  // the thread has not begun, or has ended
  mutable absl::Mutex work_mu_;
  bool waits_ ABSL_GUARDED_BY(work_mu_) = false;  // for a job
  // The work of RunGuest, until it has ended or was refused since a job came first.
  struct Guest;
  Guest* guest_ ABSL_GUARDED_BY(work_mu_) = nullptr;
  std::vector<std::function<absl::Status()>> work_ ABSL_GUARDED_BY(work_mu_);
};

}  // namespace permafrost::jobs
