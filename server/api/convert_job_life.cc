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

absl::Duration DurationFromWire(const google::protobuf::Duration& wire, std::string_view field,
                                Violations& violations) {
  const int64_t seconds = wire.seconds();
  const int32_t nanos = wire.nanos();
  // One below 0 is the job's to refuse.
  if (seconds < -kMaxDurationSeconds || seconds > kMaxDurationSeconds || nanos < -kMaxNanos || nanos > kMaxNanos) {
    violations.Add(field,
                   absl::StrCat(seconds, " s and ", nanos, " ns are no google.protobuf.Duration; accepted: at most ",
                                kMaxDurationSeconds, " s"));
    return absl::InfiniteDuration();
  }
  return absl::Seconds(seconds) + absl::Nanoseconds(nanos);
}

absl::Time TimeFromWire(const google::protobuf::Timestamp& wire, std::string_view field, Violations& violations) {
  const int64_t seconds = wire.seconds();
  const int32_t nanos = wire.nanos();
  if (seconds < kMinTimestampSeconds || seconds > kMaxTimestampSeconds || nanos < 0 || nanos > kMaxNanos) {
    violations.Add(field, absl::StrCat(seconds, " s and ", nanos, " ns are no google.protobuf.Timestamp"));
    return absl::InfiniteFuture();
  }
  return absl::FromUnixSeconds(seconds) + absl::Nanoseconds(nanos);
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
