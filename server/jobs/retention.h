// Deletes ended jobs that the operator does not want to keep (--keep-finished-jobs).
// Threads: one thread. Borrows everything.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/monotonic.h"
#include "jobs/admission.h"
#include "jobs/job.h"
#include "jobs/job_book.h"
#include "telemetry/job_metrics.h"

namespace permafrost::jobs {

// Returns the jobs of `ended` that `keep` does not keep, the earliest end first. A job whose record cannot be read is
// never returned, because its files are all that is left of it.
std::vector<Job> ChooseExpired(std::vector<Job> ended, const KeepFinished& keep, absl::Time now);

class Retention {
 public:
  // `may_expire` is the same as JobManagerOptions::may_expire.
  Retention(JobBook& book, Admission& admission, telemetry::JobMetrics& metrics, const KeepFinished& keep,
            std::function<bool()> may_expire)
      : book_(book), admission_(admission), metrics_(metrics), keep_(keep), may_expire_(std::move(may_expire)) {}

  // Deletes expired jobs. Looks for them if a job has ended since the last look, or a minute has passed. Does nothing
  // while the clock is in doubt. Deletions are logged and counted. The next look tries again what cannot be deleted
  // now.
  void Apply();

 private:
  void Look();

  JobBook& book_;
  Admission& admission_;
  telemetry::JobMetrics& metrics_;
  const KeepFinished keep_;
  const std::function<bool()> may_expire_;
  int64_t ended_seen_ = -1;
  Stopwatch since_look_;
};

}  // namespace permafrost::jobs
