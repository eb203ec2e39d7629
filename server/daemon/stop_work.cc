#include "daemon/stop_work.h"

#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/monotonic.h"

namespace permafrost {

absl::Status StopWork(absl::Duration timeout, data::Catalog& catalog, jobs::JobManager& jobs, const JobId& running) {
  struct Progress {
    Event imports_stopped, jobs_ended;
  };
  // Shared, since the thread may outlive this call.
  auto progress = std::make_shared<Progress>();
  std::thread([&catalog, &jobs, progress] {
    catalog.StopImports();
    progress->imports_stopped.Set();
    jobs.Join();
    progress->jobs_ended.Set();
  }).detach();
  if (progress->jobs_ended.WaitFor(timeout == absl::ZeroDuration() ? absl::InfiniteDuration() : timeout)) {
    return absl::OkStatus();
  }
  const std::string limit = absl::StrCat(" within ", absl::FormatDuration(timeout), " (--exit-timeout)");
  if (!progress->imports_stopped.is_set()) {
    return absl::DeadlineExceededError(
        absl::StrCat("the running import did not stop", limit, "; it begins anew at the next start"));
  }
  return absl::DeadlineExceededError(absl::StrCat("job ", running.value(), " reached no step boundary", limit,
                                                  "; it resumes from its last checkpoint at the next start"));
}

}  // namespace permafrost
