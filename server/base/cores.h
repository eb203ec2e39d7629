// Tells how many threads this process can run at once: the one answer for the device, imports and whatever else
// computes. Threads: safe anywhere. Reads small files of the kernel at each call.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

namespace permafrost {

// The cores that the scheduler lets the calling thread use (its affinity), or fewer where a control group's quota of
// processor time is less. At least 1. Where the system knows no affinity: the machine's.
int AvailableCores();

// The least quota, in whole cores rounded up, of the groups of the controller "cpu" that `membership` (the text of
// /proc/self/cgroup) names and of their parents, below `root`: `cpu.max` (version 2), `cpu.cfs_quota_us` and
// `cpu.cfs_period_us` (version 1). nullopt: no quota is set.
std::optional<int> CgroupCores(std::string_view membership, const std::filesystem::path& root);

}  // namespace permafrost
