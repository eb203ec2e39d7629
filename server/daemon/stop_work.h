// Ends the daemon's work: the import under way, then the drained device thread.
#pragma once

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/id.h"
#include "data/catalog/catalog.h"
#include "jobs/job_manager.h"

namespace permafrost {

// Stops imports, and waits for the job that runs (`running`, empty: none) to end, which JobManager::Drain has asked
// for. Errors: DeadlineExceeded, saying which of them goes on, where that takes longer than `timeout` (0: no limit).
// Both references are then still in use, so that the process cannot end in order: neither may be destroyed. Threads:
// one call.
absl::Status StopWork(absl::Duration timeout, data::Catalog& catalog, jobs::JobManager& jobs, const JobId& running);

}  // namespace permafrost
