// absl's time as protobuf's well-known types.
// Threads: pure functions.
#pragma once

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace permafrost::api {

// Leaves `out` as it is for an infinite time. `out` is a function, since touching a submessage would set it:
// SetTime(job.end_time, [&] { return wire.mutable_end_time(); });
template <class Out>
void SetTime(absl::Time time, Out out) {
  if (time == absl::InfinitePast() || time == absl::InfiniteFuture()) return;
  const int64_t seconds = absl::ToUnixSeconds(time);
  google::protobuf::Timestamp* wire = out();
  wire->set_seconds(seconds);
  wire->set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(seconds))));
}

// Converts a finite duration of either sign, or 0.
inline google::protobuf::Duration SignedDuration(absl::Duration duration) {
  google::protobuf::Duration wire;
  absl::Duration rest;
  wire.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  wire.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return wire;
}

// Leaves `out` unset for a duration that is not finite or not above zero: nothing is known then.
template <class Out>
void SetDuration(absl::Duration duration, Out out) {
  if (duration <= absl::ZeroDuration() || duration == absl::InfiniteDuration()) return;
  *out() = SignedDuration(duration);
}

}  // namespace permafrost::api
