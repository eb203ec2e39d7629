#include "jobs/limits.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"

namespace permafrost::jobs {

namespace {

std::string UtcText(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", time, absl::UTCTimeZone()); }

}  // namespace

Limit PassedLimit(const spec::JobLimits& limits, absl::Duration device_time, absl::Time now) {
  if (device_time >= limits.max_runtime) return Limit::kMaxRuntime;
  return now >= limits.deadline ? Limit::kDeadline : Limit::kNone;
}

void ValidateDeadline(absl::Time deadline, std::string_view field, Violations& violations) {
  const absl::Time now = absl::Now();
  if (deadline > now) return;
  violations.Add(field, absl::StrCat(UtcText(deadline), " has passed; accepted: later than ", UtcText(now)));
}

absl::Status LimitError(Limit limit, const spec::JobLimits& limits) {
  if (limit == Limit::kMaxRuntime) {
    return WithReason(absl::DeadlineExceededError(absl::StrCat("it was on the device for its max_runtime of ",
                                                               absl::FormatDuration(limits.max_runtime),
                                                               "; with a larger one it can be retried")),
                      "MAX_RUNTIME");
  }
  return WithReason(absl::DeadlineExceededError(absl::StrCat("its deadline of ", UtcText(limits.deadline),
                                                             " has passed; with a later one it can be retried")),
                    "DEADLINE_EXCEEDED");
}

}  // namespace permafrost::jobs
