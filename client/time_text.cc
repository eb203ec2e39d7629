#include "client/time_text.h"

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace permafrost::client {

std::optional<absl::Duration> ParseDurationText(const std::string& text) {
  absl::Duration duration;
  absl::string_view days(text);
  double count = 0;
  // Abseil knows no days.
  if (!days.empty() && days.back() == 'd' && absl::SimpleAtod(days.substr(0, days.size() - 1), &count)) {
    duration = count * absl::Hours(24);
  } else if (!absl::ParseDuration(text, &duration)) {
    return std::nullopt;
  }
  // Protobuf's durations hold no more.
  const absl::Duration most = absl::Hours(24 * 365 * 10'000);
  if (duration > most || duration < -most) return std::nullopt;
  return duration;
}

std::optional<absl::Time> ParseTimeText(const std::string& text, absl::Time now) {
  if (const auto ahead = ParseDurationText(text)) return now + *ahead;
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return std::nullopt;
  if (time == absl::InfiniteFuture() || time == absl::InfinitePast()) return std::nullopt;
  return time;
}

}  // namespace permafrost::client
