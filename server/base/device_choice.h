// Names the device that a daemon shall use: its kind, and which of several cards.
// Threads: values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/device_kind.h"
#include "base/string_view.h"

namespace permafrost {

// A device as it is asked for: "cpu", "cuda", or "cuda:1", the second card. `index` is 0 for all other kinds.
struct DeviceChoice {
  DeviceKind kind = DeviceKind::kAuto;
  int index = 0;
  bool operator==(const DeviceChoice&) const = default;
};
inline constexpr int kMaxDeviceIndex = 63;

inline std::string DeviceText(const DeviceChoice& choice) {
  std::string text(kDeviceNames.Name(choice.kind));
  if (choice.index > 0) absl::StrAppend(&text, ":", choice.index);
  return text;
}

// nullopt: `text` is none of what AcceptedDevices says.
inline std::optional<DeviceChoice> ParseDevice(std::string_view text) {
  const size_t colon = text.find(':');
  const auto kind = kDeviceNames.Parse(text.substr(0, colon));
  if (!kind) return std::nullopt;
  DeviceChoice choice{.kind = *kind};
  if (colon == std::string_view::npos) return choice;
  const std::string_view digits = text.substr(colon + 1);
  if (*kind != DeviceKind::kCuda || digits.empty() || digits.find_first_not_of("0123456789") != digits.npos ||
      !absl::SimpleAtoi(AbslView(digits), &choice.index) || choice.index > kMaxDeviceIndex) {
    return std::nullopt;
  }
  return choice;
}

// "auto, cpu, mps, cuda, or cuda:N for the card N, from 0".
inline std::string AcceptedDevices() {
  return absl::StrCat(kDeviceNames.Accepted(), ", or cuda:N for the card N, from 0");
}

}  // namespace permafrost
