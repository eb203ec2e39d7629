// Formats numbers, sizes, times and names for people, parses durations and times that people write, and converts
// between protobuf's and Abseil's times. Threads: everything here is pure.
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

// Returns, for example, "0.52 s", "12.3 s", "1m 52s", "2h 05m" or "3d 04h". Negative durations count as zero.
std::string DurationText(absl::Duration d);
// Returns whole seconds, for text that changes while it is read: "9s", "1m 52s".
std::string EtaText(absl::Duration d);
// Returns, for example, "just now", "12s ago", "3m ago", "5h ago" or "3d ago". Times more than a week ago give the
// local date.
std::string AgeText(absl::Time t, absl::Time now, absl::TimeZone zone);
// Returns, for example, "2026-01-31 13:22:10".
std::string ClockText(absl::Time t, absl::TimeZone zone);
// Returns three significant digits with powers of 1000: "812 B", "1.23 kB", "45.6 MB".
std::string BytesText(int64_t bytes);
// Returns, for example, "103,425".
std::string CountText(int64_t n);
// Returns three significant digits: "950", "21.4k", "1.23M".
std::string ShortText(double value);
// Formats a loss or a metric: "0.3121", "12.346", "1.20e-05", "nan", "inf".
std::string MetricText(double value);
// Returns the shortest decimal that reads back as `value`, such as "0.001".
std::string ExactText(double value);

// Returns a percentage: "0.0 %", "9.1 %", "100 %". "0.0 %" means exactly nothing, and "100 %" exactly the whole.
// Other shares that would round to these texts give "<0.1 %" and ">99.9 %".
std::string ShareText(int64_t part, int64_t whole);

// Text in a table for a missing value.
inline constexpr char kNothing[] = "-";

// Replaces each control character of `text` by a space, so that text from a server cannot move the cursor.
std::string OneLine(std::string_view text);
// Returns the number of columns that `text` takes on a terminal: the number of its code points.
int DisplayWidth(std::string_view text);
// Turns "jobs/x" into "x" for the collection "jobs". Leaves other names as they are.
std::string_view StripCollection(std::string_view collection, std::string_view name);
// Turns "x" into "jobs/x" for the collection "jobs". Leaves a name that has the prefix as it is.
std::string WithCollection(std::string_view collection, std::string_view name);
// CacheName turns "x", "jobs/x" or "jobs/x/graphCache" into "jobs/x/graphCache". CacheJob turns any of the three into
// "x".
std::string CacheName(std::string_view name);
std::string_view CacheJob(std::string_view name);

using WireLabels = google::protobuf::Map<std::string, std::string>;
// Returns, for example, "stage=test, team=gnn", in the order of the keys.
std::string LabelsText(const WireLabels& labels);

inline constexpr char kAcceptedDuration[] = "a duration, such as 90s, 45m, 1h30m or 2d";
inline constexpr char kAcceptedTime[] = "a time, such as 2026-01-31T13:00:00Z, or how far ahead it is, such as 12h";

// Parses durations such as "90s", "1h30m", "1.5h" or "2d". Returns nullopt if `text` is not a duration, or not a
// finite one.
std::optional<absl::Duration> ParseDurationText(const std::string& text);
// Parses a time in RFC 3339, or a duration, which is added to `now`.
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
