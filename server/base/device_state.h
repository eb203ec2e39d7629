// A device as it is observed: its memory by kind, and what it keeps of compiled steps beyond the executables of jobs.
// Threads: values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/enum_names.h"

namespace permafrost {

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

}  // namespace permafrost
