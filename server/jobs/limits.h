// Limits on the time that a job may take, max_runtime and deadline, and on how many ended jobs are kept. Threads: pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "jobs/job.h"

namespace permafrost::jobs {

enum class Limit { kNone, kMaxRuntime, kDeadline };

// Returns the limit of the job that is passed. `device_time`: the time of all its runs so far. `now`: by the clock that
// deadlines are measured by (BookOptions::now).
Limit PassedLimit(const spec::JobLimits& limits, absl::Duration device_time, absl::Time now);

// A new deadline must lie ahead.
void ValidateDeadline(absl::Time deadline, std::string_view field, Violations& violations);

// DeadlineExceeded, reason MAX_RUNTIME or DEADLINE_EXCEEDED, that says how the job goes on. `limit`: not kNone.
absl::Status LimitError(Limit limit, const spec::JobLimits& limits);

// The rule for which ended jobs are kept: by default all. Both may be given: a job is kept where each of them keeps it.
struct KeepFinished {
  std::optional<int64_t> count;                   // those that ended last
  absl::Duration age = absl::InfiniteDuration();  // those that ended less long ago
  bool keeps_all() const { return !count && age == absl::InfiniteDuration(); }
};

}  // namespace permafrost::jobs
