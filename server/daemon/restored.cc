#include "daemon/restored.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "backup/restore.h"
#include "base/status.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost {
namespace {

using telemetry::Log;
using telemetry::Severity;

}  // namespace

std::optional<backup::Manifest> ReadRestored(const std::filesystem::path& state_dir) {
  absl::StatusOr<std::optional<backup::Manifest>> manifest = backup::ReadManifest(state_dir, backup::kRestoredFile);
  if (!manifest.ok()) {
    Log(Severity::kWarning, StdView(manifest.status().message()));
    return std::nullopt;
  }
  if (*manifest) (*manifest)->files.clear();
  return *std::move(manifest);
}

absl::Status TakeUpRestored(const std::filesystem::path& state_dir, const data::Catalog& catalog,
                            jobs::JobManager& jobs) {
  int64_t paused = 0;
  std::string token;
  do {
    PF_ASSIGN_OR_RETURN(const jobs::JobPage page,
                        jobs.List(0, token, {.states = {jobs::JobState::kQueued}, .filter = ""}));
    for (const jobs::Job& job : page.jobs) {
      const DatasetId& dataset = job.spec.train.dataset;
      // An import that had not ended begins anew, and may end otherwise than it did.
      const auto known = catalog.Get(dataset);
      if (known.ok() ? known->state == data::DatasetState::kReady : !absl::IsNotFound(known.status())) continue;
      PF_RETURN_IF_ERROR(jobs.Pause(job.id).status());
      ++paused;
      const std::string_view first = known.ok() ? "when its import has ended" : "import it again, then";
      Log(Severity::kWarning,
          absl::StrCat("job ", job.id.value(), " is paused: the backup is without its dataset ", dataset.value(), "; ",
                       AbslView(first), " permafrost job resume ", job.id.value()));
    }
    token = page.next_page_token;
  } while (!token.empty());
  PF_RETURN_IF_ERROR(backup::EndRestore(state_dir));
  const std::optional<backup::Manifest> taken_up = ReadRestored(state_dir);
  for (const JobId& job : taken_up ? taken_up->jobs_anew : std::vector<JobId>()) {
    telemetry::LogOfJob(Severity::kWarning, job.value(), "begins anew: its checkpoints were all damaged in the backup");
  }
  for (const std::string& dataset : taken_up ? taken_up->imports : std::vector<std::string>()) {
    Log(Severity::kWarning, absl::StrCat("the import of ", dataset, " had not ended in the backup: it begins anew"));
  }
  Log(Severity::kInfo, absl::StrCat("goes on from a backup, every file of which is whole; ", paused,
                                    paused == 1 ? " job waits for its dataset" : " jobs wait for their datasets"));
  return absl::OkStatus();
}

}  // namespace permafrost
