// Durations and times as people write them, and protobuf's as absl's.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace permafrost::client {

inline constexpr char kAcceptedDuration[] = "a duration, such as 90s, 45m, 1h30m or 2d";
inline constexpr char kAcceptedTime[] = "a time, such as 2026-01-31T13:00:00Z, or how far ahead it is, such as 12h";

// "90s", "1h30m", "1.5h", "2d". nullopt: it is none, or not finite.
std::optional<absl::Duration> ParseDurationText(const std::string& text);
// RFC 3339, or a duration from `now` on.
std::optional<absl::Time> ParseTimeText(const std::string& text, absl::Time now);

inline absl::Time ToTime(const google::protobuf::Timestamp& wire) {
  return absl::FromUnixSeconds(wire.seconds()) + absl::Nanoseconds(wire.nanos());
}

inline absl::Duration ToDuration(const google::protobuf::Duration& wire) {
  return absl::Seconds(wire.seconds()) + absl::Nanoseconds(wire.nanos());
}

inline google::protobuf::Timestamp ToWire(absl::Time time) {
  google::protobuf::Timestamp wire;
  wire.set_seconds(absl::ToUnixSeconds(time));
  wire.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(time - absl::FromUnixSeconds(wire.seconds()))));
  return wire;
}

inline google::protobuf::Duration ToWire(absl::Duration duration) {
  google::protobuf::Duration wire;
  absl::Duration rest;
  wire.set_seconds(absl::IDivDuration(duration, absl::Seconds(1), &rest));
  wire.set_nanos(static_cast<int32_t>(absl::ToInt64Nanoseconds(rest)));
  return wire;
}

}  // namespace permafrost::client
