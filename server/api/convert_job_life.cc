#include "api/convert_job_life.h"

#include "absl/strings/str_cat.h"
#include "api/convert_time.h"
#include "api/status.h"
#include "api/text.h"
#include "api/wire_enum.h"

namespace permafrost::api {
namespace {

using LifeStates = WireEnum<v1::Job::State, jobs::kJobStateNames>;

// The most that google.protobuf.Duration and Timestamp may hold.
constexpr int64_t kMaxDurationSeconds = 315'576'000'000;
constexpr int64_t kMinTimestampSeconds = -62'135'596'800;
constexpr int64_t kMaxTimestampSeconds = 253'402'300'799;
constexpr int32_t kMaxNanos = 999'999'999;

}  // namespace

absl::Duration MaxRuntimeFromWire(const v1::JobSpec& wire, std::string_view field, Violations& violations) {
  if (!wire.has_max_runtime()) return absl::InfiniteDuration();
  const int64_t seconds = wire.max_runtime().seconds();
  const int32_t nanos = wire.max_runtime().nanos();
  // One below 0 is the job's to refuse.
  if (seconds < -kMaxDurationSeconds || seconds > kMaxDurationSeconds || nanos < -kMaxNanos || nanos > kMaxNanos) {
    violations.Add(field,
                   absl::StrCat(seconds, " s and ", nanos, " ns are no google.protobuf.Duration; accepted: at most ",
                                kMaxDurationSeconds, " s"));
    return absl::InfiniteDuration();
  }
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

absl::Time DeadlineFromWire(const v1::JobSpec& wire, std::string_view field, Violations& violations) {
  if (!wire.has_deadline()) return absl::InfiniteFuture();
  const int64_t seconds = wire.deadline().seconds();
  const int32_t nanos = wire.deadline().nanos();
  if (seconds < kMinTimestampSeconds || seconds > kMaxTimestampSeconds || nanos < 0 || nanos > kMaxNanos) {
    violations.Add(field, absl::StrCat(seconds, " s and ", nanos, " ns are no google.protobuf.Timestamp"));
    return absl::InfiniteFuture();
  }
  return absl::FromUnixSeconds(seconds) + absl::Nanoseconds(nanos);
}

void LimitsToWire(const spec::JobLimits& limits, v1::JobSpec& wire) {
  SetDuration(limits.max_runtime, [&wire] { return wire.mutable_max_runtime(); });
  SetTime(limits.deadline, [&wire] { return wire.mutable_deadline(); });
}

void LifeToWire(const jobs::Job& job, v1::Job& wire) {
  for (const jobs::StateChange& change : job.history.changes) {
    v1::StateChange& out = *wire.add_state_changes();
    out.set_state(LifeStates::ToWire(change.state));
    SetTime(change.time, [&out] { return out.mutable_time(); });
    out.set_reason(ValidUtf8(change.reason));
    out.set_message(ValidUtf8(change.message));
  }
  wire.set_dropped_state_changes(job.history.dropped);
  SetDuration(job.device_time, [&wire] { return wire.mutable_device_time(); });
  wire.set_error(ValidUtf8(job.error));
  if (const absl::Status error = jobs::ErrorOf(job); !error.ok()) SetRpcStatus(error, *wire.mutable_error_status());
}

}  // namespace permafrost::api
