// Protobuf's times as absl's.
// Threads: everything here is pure.
#pragma once

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/timestamp.pb.h"

namespace permafrost::client {

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
