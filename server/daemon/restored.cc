#include "daemon/restored.h"

#include "absl/strings/str_cat.h"
#include "backup/restore.h"
#include "base/status.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

using telemetry::Log;
using telemetry::Severity;

}  // namespace

absl::Status TakeUpRestored(const std::filesystem::path& state_dir, const data::Catalog& catalog,
                            jobs::JobManager& jobs) {
  int64_t paused = 0;
  std::string token;
  do {
    PF_ASSIGN_OR_RETURN(const jobs::JobPage page,
                        jobs.List(0, token, {.states = {jobs::JobState::kQueued}, .filter = ""}));
    for (const jobs::Job& job : page.jobs) {
      const DatasetId& dataset = job.spec.train.dataset;
      if (!absl::IsNotFound(catalog.Get(dataset).status())) continue;
      PF_RETURN_IF_ERROR(jobs.Pause(job.id).status());
      ++paused;
      Log(Severity::kWarning,
          absl::StrCat("job ", job.id.value(), " is paused: the backup is without its dataset ", dataset.value(),
                       "; import it again, then permafrost job resume ", job.id.value()));
    }
    token = page.next_page_token;
  } while (!token.empty());
  PF_RETURN_IF_ERROR(backup::EndRestore(state_dir));
  Log(Severity::kInfo, absl::StrCat("goes on from a backup, every file of which is whole; ", paused,
                                    paused == 1 ? " job waits for its dataset" : " jobs wait for their datasets"));
  return absl::OkStatus();
}

}  // namespace permafrost
