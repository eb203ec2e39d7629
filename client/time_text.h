// Durations and times as people write them.
// Threads: pure functions.
#pragma once

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace permafrost::client {

inline constexpr char kAcceptedDuration[] = "a duration, such as 90s, 45m, 1h30m or 2d";
inline constexpr char kAcceptedTime[] = "a time, such as 2026-01-31T13:00:00Z, or how far ahead it is, such as 12h";

// "90s", "1h30m", "1.5h", "2d". nullopt: it is none, or not finite.
std::optional<absl::Duration> ParseDurationText(const std::string& text);
// RFC 3339, or a duration from `now` on.
std::optional<absl::Time> ParseTimeText(const std::string& text, absl::Time now);

}  // namespace permafrost::client
