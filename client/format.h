// Numbers, sizes, times and identifiers as people read them; durations and times as people write them, and protobuf's
// as absl's. Threads: everything here is pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "google/protobuf/duration.pb.h"
#include "google/protobuf/map.h"
#include "google/protobuf/timestamp.pb.h"

namespace permafrost::client {

// "0.52 s", "12.3 s", "1m 52s", "2h 05m", "3d 04h". Negative: as zero.
std::string DurationText(absl::Duration d);
// The same in whole seconds, for what changes while it is read: "9s", "1m 52s".
std::string EtaText(absl::Duration d);
// "just now", "12s ago", "3m ago", "5h ago", "3d ago"; older than a week: the local date.
std::string AgeText(absl::Time t, absl::Time now, absl::TimeZone zone);
// "2026-01-31 13:22:10".
std::string ClockText(absl::Time t, absl::TimeZone zone);
// Powers of 1000, three significant digits: "812 B", "1.23 kB", "45.6 MB".
std::string BytesText(int64_t bytes);
// "103,425".
std::string CountText(int64_t n);
// Three significant digits: "950", "21.4k", "1.23M".
std::string ShortText(double value);
// A loss or error: "0.3121", "12.346", "1.20e-05"; "nan" and "inf" as they are.
std::string MetricText(double value);
// The shortest decimal that reads back as `value`: "0.001".
std::string ExactText(double value);

// Part of a whole: "0.0 %", "9.1 %", "100 %". Only none is zero and only all is 100: else "<0.1 %" and ">99.9 %".
std::string ShareText(int64_t part, int64_t whole);

// Stands in a table where a value is missing.
inline constexpr char kNothing[] = "-";

// `text` without control characters: what a server sent may not move the cursor. Each one becomes a space.
std::string OneLine(std::string_view text);
// Columns that `text` takes on a terminal: its code points.
int DisplayWidth(std::string_view text);
// "jobs/x" -> "x" for collection "jobs"; other names as they are.
std::string_view StripCollection(std::string_view collection, std::string_view name);
// "x" -> "jobs/x" for collection "jobs"; names that have the prefix as they are.
std::string WithCollection(std::string_view collection, std::string_view name);
// "x", "jobs/x" or "jobs/x/graphCache" -> "jobs/x/graphCache", and the "x" of it.
std::string CacheName(std::string_view name);
std::string_view CacheJob(std::string_view name);

using WireLabels = google::protobuf::Map<std::string, std::string>;
// "stage=test, team=gnn", by key.
std::string LabelsText(const WireLabels& labels);

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
