// Names the devices that Permafrost knows: which of them a daemon shall use, and what is observed of one.
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

// The devices that Permafrost knows, by the names of flags, API and metrics.
enum class DeviceKind { kAuto, kCpu, kMps, kCuda };
inline constexpr EnumNames<DeviceKind, 4> kDeviceNames{
    {{{DeviceKind::kAuto, "auto"}, {DeviceKind::kCpu, "cpu"}, {DeviceKind::kMps, "mps"}, {DeviceKind::kCuda, "cuda"}}}};

// A device as it is asked for: "cpu", "cuda", or "cuda:1", the second card. `index` is 0 for all other kinds.
struct DeviceChoice {
  // A kind alone names its first card.
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

// nullopt: `text` is none of what AcceptedDevices says.
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

// "auto, cpu, mps, cuda, or cuda:N for the card N, from 0".
inline std::string AcceptedDevices() {
  return absl::StrCat(kDeviceNames.Accepted(), ", or cuda:N for the card N, from 0");
}

// A device as it is observed: its memory by kind, and what it keeps of compiled steps beyond the executables of jobs.
// Threads: values.

// In bytes; nullopt: the device does not tell.
struct DeviceMemory {
  std::optional<int64_t> allocated;        // of live tensors
  std::optional<int64_t> reserved;         // held by libtorch's allocator, free blocks included
  std::optional<int64_t> driver;           // held by the driver for this process, compiled graphs included
  std::optional<int64_t> recommended_max;  // what the device says a process should keep within
  std::optional<int64_t> resident;         // of this process, on the host
  bool operator==(const DeviceMemory&) const = default;
};

// The default part of the recommended maximum of driver memory from which on the caches of MPS are emptied between
// steps.
inline constexpr double kDefaultMpsDriverThreshold = 0.9;

// Why a device's own caches, of memory and of compiled graphs, are emptied between two steps.
enum class EmptyReason {
  kNever,         // policy never: after each step
  kClearPerStep,  // policy clear-per-step: after each step
  kThreshold,     // the driver holds too much memory
  kCommand,       // a job's graph cache was cleared
  kJob,           // a job began, which has no use for the graphs of the one before
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
  // Graphs that the device itself keeps compiled, one a shape; nullopt: not known, for the reason below.
  std::optional<int64_t> graph_entries;
  std::string no_graph_entries_reason;
  // How often the device's caches were emptied, by reason (kEmptyReasonNames). Every reason has an entry; devices
  // without such caches have none.
  std::map<std::string, int64_t> empty_caches;
  std::optional<double> utilization;  // 0..1
  // The settings of this device in the environment of the process, as read at start.
  std::vector<DeviceSetting> settings;
  // Each line tells a setting that defeats its purpose.
  std::vector<std::string> warnings;
  bool operator==(const DeviceState&) const = default;
};

// Memory of tensors on one device, of all jobs of the process.
struct StorageUse {
  int64_t bytes = 0;        // live; on the CPU that is the heap, arenas included
  int64_t peak_bytes = 0;   // the most at once since the peak was restarted, or since the process began
  int64_t allocations = 0;  // since the process began; 0 where the device does not count them
};

}  // namespace permafrost
