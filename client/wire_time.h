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

}  // namespace permafrost::client
