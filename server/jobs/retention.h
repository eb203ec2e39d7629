// Deletes the ended jobs that the operator does not want to keep (--keep-finished-jobs).
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

// Returns the jobs of `ended` that `keep` does not keep, the oldest end first. Never returns a job whose record cannot
// be read, because its files are all that is left of the job.
std::vector<Job> ChooseExpired(std::vector<Job> ended, const KeepFinished& keep, absl::Time now);

class Retention {
 public:
  // `may_expire` is the same as JobManagerOptions::may_expire.
  Retention(JobBook& book, Admission& admission, telemetry::JobMetrics& metrics, const KeepFinished& keep,
            std::function<bool()> may_expire)
      : book_(book), admission_(admission), metrics_(metrics), keep_(keep), may_expire_(std::move(may_expire)) {}

  // Deletes expired jobs. Looks for them only if a job has ended or a minute has passed since the last look. Does
  // nothing while the clock is in doubt. Logs and counts deletions. If a job cannot be deleted now, the next look
  // tries again.
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
