// The kinds of devices, the choice of a device, and the observed state of a device.
// Threads: values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/enum_names.h"
#include "base/string_view.h"

namespace permafrost {

// Flags, the API and metrics use the names in kDeviceNames.
enum class DeviceKind { kAuto, kCpu, kMps, kCuda };
inline constexpr EnumNames<DeviceKind, 4> kDeviceNames{
    {{{DeviceKind::kAuto, "auto"}, {DeviceKind::kCpu, "cpu"}, {DeviceKind::kMps, "mps"}, {DeviceKind::kCuda, "cuda"}}}};

// The device that a user asks for: "cpu", "cuda", or "cuda:1" for the second card. `index` is the card's number for
// CUDA, and 0 for every other kind.
struct DeviceChoice {
  // Without an index, a kind means its first card.
  constexpr DeviceChoice(DeviceKind of_kind = DeviceKind::kAuto, int of_index = 0) : kind(of_kind), index(of_index) {}
  DeviceKind kind;
  int index;
  bool operator==(const DeviceChoice&) const = default;
};
inline constexpr int kMaxDeviceIndex = 63;

inline std::string DeviceText(const DeviceChoice& choice) {
  std::string text(kDeviceNames.Name(choice.kind));
  if (choice.index > 0) absl::StrAppend(&text, ":", choice.index);
  return text;
}

// Returns nullopt if `text` is not one of the forms that AcceptedDevices lists.
inline std::optional<DeviceChoice> ParseDevice(std::string_view text) {
  const size_t colon = text.find(':');
  const auto kind = kDeviceNames.Parse(text.substr(0, colon));
  if (!kind) return std::nullopt;
  DeviceChoice choice(*kind);
  if (colon == std::string_view::npos) return choice;
  const std::string_view digits = text.substr(colon + 1);
  if (*kind != DeviceKind::kCuda || digits.empty() || digits.find_first_not_of("0123456789") != digits.npos ||
      !absl::SimpleAtoi(AbslView(digits), &choice.index) || choice.index > kMaxDeviceIndex) {
    return std::nullopt;
  }
  return choice;
}

// Returns "auto, cpu, mps, cuda, or cuda:N for the card N, from 0".
inline std::string AcceptedDevices() {
  return absl::StrCat(kDeviceNames.Accepted(), ", or cuda:N for the card N, from 0");
}

// The observed state of a device: its use of memory, and the compiled graphs that the device itself keeps besides the
// jobs' executables. Threads: values.

// All values are in bytes. nullopt means that the device does not report the value.
struct DeviceMemory {
  std::optional<int64_t> allocated;        // bytes of live tensors
  std::optional<int64_t> reserved;         // held by libtorch's allocator, free blocks included
  std::optional<int64_t> driver;           // held by the driver for this process, compiled graphs included
  std::optional<int64_t> recommended_max;  // the most that a process should use, according to the device
  std::optional<int64_t> resident;         // resident memory of this process, on the host
  bool operator==(const DeviceMemory&) const = default;
};

// The default threshold for MPS, as a fraction of the recommended maximum of memory. Once driver memory reaches it,
// the caches of MPS are emptied between two steps.
inline constexpr double kDefaultMpsDriverThreshold = 0.9;

// The reason why a device's own caches (of memory and of compiled graphs) are emptied between two steps.
enum class EmptyReason {
  kNever,         // after each step, under the policy `never`
  kClearPerStep,  // after each step, under the policy `clear-per-step`
  kThreshold,     // the driver holds too much memory
  kCommand,       // a job's graph cache was cleared
  kJob,           // a job began that has no use for the previous job's graphs
};
inline constexpr EnumNames<EmptyReason, 5> kEmptyReasonNames{{{{EmptyReason::kNever, "never"},
                                                               {EmptyReason::kClearPerStep, "clear-per-step"},
                                                               {EmptyReason::kThreshold, "threshold"},
                                                               {EmptyReason::kCommand, "command"},
                                                               {EmptyReason::kJob, "job"}}}};

struct DeviceSetting {
  std::string name;
  std::string value;
  bool operator==(const DeviceSetting&) const = default;
};

struct DeviceState {
  DeviceMemory memory;
  // The number of compiled graphs that the device itself keeps, one per shape. nullopt means that the number is
  // unknown, for the reason in no_graph_entries_reason.
  std::optional<int64_t> graph_entries;
  std::string no_graph_entries_reason;
  // How often the device's caches were emptied, by reason (kEmptyReasonNames). A device with such caches has an entry
  // for every reason; a device without them has none.
  std::map<std::string, int64_t> empty_caches;
  std::optional<double> utilization;  // 0 to 1
  // The settings that the device takes from environment variables, as read when the process started.
  std::vector<DeviceSetting> settings;
  // One line for each of these settings that may harm jobs, for example by making them slower.
  std::vector<std::string> warnings;
  bool operator==(const DeviceState&) const = default;
};

// The memory that all jobs of the process use for tensors on one device.
struct StorageUse {
  int64_t bytes = 0;        // live bytes; on the CPU, the heap including arenas
  int64_t peak_bytes = 0;   // most bytes live at once since the peak was reset or the process began
  int64_t allocations = 0;  // number of allocations since the process began; 0 if the device does not count them
};

}  // namespace permafrost
