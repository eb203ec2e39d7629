#include "daemon/setting.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "absl/strings/match.h"
#include "base/host_port.h"
#include "base/status.h"

namespace permafrost {

absl::Status Refuse(const std::string& value, absl::string_view accepted) {
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\": accepted: ", accepted));
}

absl::Status ReadAddress(const std::string& value, std::string& out) {
  PF_ASSIGN_OR_RETURN(const HostPort parsed, ParseHostPort(value));
  out = FormatHostPort(parsed);
  return absl::OkStatus();
}

absl::Status ReadDirectory(const std::string& value, std::filesystem::path& out) {
  out = value;
  return value.empty() ? Refuse(value, "a directory") : absl::OkStatus();
}

absl::Status ReadFilePath(const std::string& value, std::filesystem::path& out) {
  out = value;
  return value.empty() ? Refuse(value, "a file") : absl::OkStatus();
}

absl::Status ReadBool(const std::string& value, bool& out) {
  return absl::SimpleAtob(value, &out) ? absl::OkStatus() : Refuse(value, "true or false");
}

std::string ShowBool(bool value) { return value ? "true" : "false"; }

absl::Status ReadPart(const std::string& value, double most, double& out) {
  // Written so that NaN fails.
  const bool ok = absl::SimpleAtod(value, &out) && out >= 0 && out <= most;
  return ok ? absl::OkStatus() : Refuse(value, absl::StrCat("0 to ", most));
}

// 500000000, 500MB, 1.5GiB.
absl::Status ReadSize(const std::string& value, uint64_t& out) {
  constexpr std::string_view kUnits = "kKMGT";
  constexpr double kMostBytes = 1e15;
  absl::string_view number = value;
  double factor = 1;
  if (absl::EndsWith(number, "B")) number.remove_suffix(1);
  const bool binary = absl::EndsWith(number, "i");
  if (binary) number.remove_suffix(1);
  if (const size_t unit = number.empty() ? std::string_view::npos : kUnits.find(number.back());
      unit != std::string_view::npos) {
    factor = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(std::max<size_t>(unit, 1)));
    number.remove_suffix(1);
  }
  double size = -1;
  // Written so that NaN fails.
  const bool has_unit = !binary || factor != 1;
  const bool ok = has_unit && absl::SimpleAtod(number, &size) && size >= 0 && size * factor <= kMostBytes;
  if (!ok) return Refuse(value, "bytes up to 1000TB, as 500000000, 500MB or 1.5GiB");
  out = static_cast<uint64_t>(size * factor);
  return absl::OkStatus();
}

absl::Status ReadSeconds(const std::string& value, double most, absl::Duration& out) {
  double seconds = -1;
  // Written so that NaN fails.
  const bool ok = absl::SimpleAtod(value, &seconds) && seconds >= 0 && seconds <= most;
  if (!ok) return Refuse(value, absl::StrCat("seconds, 0 to ", most));
  out = absl::Seconds(seconds);
  return absl::OkStatus();
}

}  // namespace permafrost
