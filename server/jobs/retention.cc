#include "jobs/retention.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost::jobs {
namespace {

constexpr absl::Duration kLookEvery = absl::Minutes(1);
constexpr int64_t kRetentionPageSize = 1000;
// The most deletions in one look. They may remove many files, and the thread must also check deadlines.
constexpr int64_t kMostDeletions = 8;

}  // namespace

std::vector<Job> ChooseExpired(std::vector<Job> ended, const KeepFinished& keep, absl::Time now) {
  std::erase_if(ended, [](const Job& job) { return job.unreadable || !IsTerminal(job.state); });
  std::ranges::sort(ended, {}, [](const Job& job) { return std::tuple(job.end_time, job.sequence); });
  const size_t kept = keep.count ? std::min(ended.size(), static_cast<size_t>(*keep.count)) : ended.size();
  const size_t beyond = ended.size() - kept;
  std::vector<Job> expired;
  for (size_t i = 0; i < ended.size(); ++i) {
    if (i < beyond || now - ended[i].end_time >= keep.age) expired.push_back(std::move(ended[i]));
  }
  return expired;
}

void Retention::Apply() {
  if (keep_.keeps_all() || book_.draining()) return;
  const int64_t ended = book_.ended();
  if (ended == ended_seen_ && since_look_.Elapsed() < kLookEvery) return;
  since_look_.Restart();
  if (!may_expire_()) return;
  ended_seen_ = ended;
  Look();
}

void Retention::Look() {
  std::vector<Job> ended;
  ListOptions page;
  page.page_size = kRetentionPageSize;
  page.states = {JobState::kSucceeded, JobState::kFailed, JobState::kCancelled};
  while (true) {
    absl::StatusOr<std::vector<Job>> jobs = book_.store().List(page);
    if (!jobs.ok()) {
      telemetry::Log(telemetry::Severity::kWarning,
                     absl::StrCat("jobs that have ended cannot be looked through: ", jobs.status().message()));
      return;
    }
    if (jobs->empty()) break;
    page.before_sequence = jobs->back().sequence;
    std::ranges::move(*jobs, std::back_inserter(ended));
  }
  const absl::Time now = book_.Now();
  int64_t deletions = 0;
  for (const Job& job : ChooseExpired(std::move(ended), keep_, now)) {
    if (book_.draining() || !may_expire_()) return;
    if (++deletions > kMostDeletions) {
      ended_seen_ = -1;  // so that the next Apply goes on
      return;
    }
    const absl::Status deleted = admission_.Delete(job.id, {}, job.end_time);
    // Another call has deleted or retried the job meanwhile.
    if (absl::IsNotFound(deleted) || absl::IsFailedPrecondition(deleted)) continue;
    if (!deleted.ok()) {
      telemetry::Log(telemetry::Severity::kWarning,
                     absl::StrCat("job ", job.id.value(), " cannot be deleted: ", deleted.message()));
      return;
    }
    metrics_.CountExpired();
    telemetry::Log(telemetry::Severity::kInfo,
                   absl::StrCat("job ", job.id.value(), ", which ", AbslView(kJobStateNames.Name(job.state)), " ",
                                absl::FormatDuration(absl::Trunc(now - job.end_time, absl::Seconds(1))),
                                " ago, was deleted: --keep-finished-jobs keeps it no more"));
  }
}

}  // namespace permafrost::jobs
