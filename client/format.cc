#include "client/format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/string_view.h"

namespace permafrost::client {
namespace {

constexpr std::string_view kGraphCache = "/graphCache";

// Formats durations of a minute or more.
std::string LongDuration(int64_t seconds) {
  if (seconds < 3600) return absl::StrFormat("%dm %02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh %02dm", seconds / 3600, seconds % 3600 / 60);
  return absl::StrFormat("%dd %02dh", seconds / 86400, seconds % 86400 / 3600);
}

// Three significant digits of a value, and the power of 1000 by which the value was divided. The value must not be
// negative.
struct Scaled {
  std::string digits;
  size_t power;
};
Scaled ScaleBy1000(double value, size_t max_power) {
  size_t power = 0;
  // A value of 999.5 or more would be printed as 1000 of the present unit.
  while (value >= 999.5 && power < max_power) {
    value /= 1000;
    ++power;
  }
  const int decimals = power == 0 ? 0 : value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return {absl::StrFormat("%.*f", decimals, value), power};
}

}  // namespace

std::string DurationText(absl::Duration d) {
  const double seconds = std::max(0.0, absl::ToDoubleSeconds(d));
  if (seconds < 9.995) return absl::StrFormat("%.2f s", seconds);
  if (seconds < 59.95) return absl::StrFormat("%.1f s", seconds);
  return LongDuration(std::llround(seconds));
}

std::string EtaText(absl::Duration d) {
  const int64_t seconds = std::llround(std::max(0.0, absl::ToDoubleSeconds(d)));
  return seconds < 60 ? absl::StrCat(seconds, "s") : LongDuration(seconds);
}

std::string AgeText(absl::Time t, absl::Time now, absl::TimeZone zone) {
  const int64_t seconds = absl::ToInt64Seconds(now - t);
  if (seconds < 5) return "just now";
  if (seconds < 60) return absl::StrCat(seconds, "s ago");
  if (seconds < 3600) return absl::StrCat(seconds / 60, "m ago");
  if (seconds < 86400) return absl::StrCat(seconds / 3600, "h ago");
  if (seconds < int64_t{7} * 86400) return absl::StrCat(seconds / 86400, "d ago");
  return absl::FormatTime("%Y-%m-%d", t, zone);
}

std::string ClockText(absl::Time t, absl::TimeZone zone) { return absl::FormatTime("%Y-%m-%d %H:%M:%S", t, zone); }

std::string BytesText(int64_t bytes) {
  static constexpr std::array<std::string_view, 6> kUnits{"B", "kB", "MB", "GB", "TB", "PB"};
  const Scaled scaled = ScaleBy1000(static_cast<double>(std::max<int64_t>(0, bytes)), kUnits.size() - 1);
  return absl::StrCat(scaled.digits, " ", AbslView(kUnits[scaled.power]));
}

std::string CountText(int64_t n) {
  const std::string digits = absl::StrCat(n);
  const size_t sign = n < 0 ? 1 : 0;
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > sign && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string ShortText(double value) {
  static constexpr std::array<std::string_view, 5> kUnits{"", "k", "M", "G", "T"};
  if (!std::isfinite(value) || value < 0) return absl::StrCat(value);
  const Scaled scaled = ScaleBy1000(value, kUnits.size() - 1);
  return absl::StrCat(scaled.digits, AbslView(kUnits[scaled.power]));
}

std::string MetricText(double value) {
  const double size = std::abs(value);
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  if (size != 0 && (size < 1e-3 || size >= 1e6)) return absl::StrFormat("%.2e", value);
  return absl::StrFormat("%.*f", size < 10 ? 4 : size < 100 ? 3 : size < 10000 ? 2 : 1, value);
}

std::string ExactText(double value) {
  for (int digits = 1; digits < 17; ++digits) {
    std::string text = absl::StrFormat("%.*g", digits, value);
    if (std::strtod(text.c_str(), nullptr) == value) return text;
  }
  return absl::StrFormat("%.17g", value);
}

std::string ShareText(int64_t part, int64_t whole) {
  if (part <= 0 || whole <= 0) return "0.0 %";
  if (part >= whole) return "100 %";
  const double percent = 100.0 * static_cast<double>(part) / static_cast<double>(whole);
  if (percent < 0.05) return "<0.1 %";
  if (percent >= 99.95) return ">99.9 %";
  return absl::StrFormat("%.1f %%", percent);
}

std::string OneLine(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  return out;
}

int DisplayWidth(std::string_view text) {
  // Every byte begins a code point, except for UTF-8's continuation bytes.
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string_view StripCollection(std::string_view collection, std::string_view name) {
  if (absl::StartsWith(AbslView(name), absl::StrCat(AbslView(collection), "/")))
    name.remove_prefix(collection.size() + 1);
  return name;
}

std::string WithCollection(std::string_view collection, std::string_view name) {
  return absl::StrCat(AbslView(collection), "/", AbslView(StripCollection(collection, name)));
}

std::string CacheName(std::string_view name) {
  return absl::StrCat("jobs/", AbslView(CacheJob(name)), AbslView(kGraphCache));
}

std::string_view CacheJob(std::string_view name) {
  absl::string_view job = AbslView(StripCollection("jobs", name));
  absl::ConsumeSuffix(&job, AbslView(kGraphCache));
  return StdView(job);
}

std::string LabelsText(const WireLabels& labels) {
  const std::map<std::string, std::string> by_key(labels.begin(), labels.end());
  return absl::StrJoin(by_key, ", ", absl::PairFormatter("="));
}

std::optional<absl::Duration> ParseDurationText(const std::string& text) {
  absl::Duration duration;
  absl::string_view days(text);
  double count = 0;
  // Abseil does not parse days.
  if (!days.empty() && days.back() == 'd' && absl::SimpleAtod(days.substr(0, days.size() - 1), &count)) {
    duration = count * absl::Hours(24);
  } else if (!absl::ParseDuration(text, &duration)) {
    return std::nullopt;
  }
  // Protobuf's durations have about this limit.
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
