// The resources of the machine that this process may use: cores, memory and disk. Control groups may lower the
// limits.
// Threads: safe anywhere. Each call reads small files of the kernel.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"

namespace permafrost {

// The directory where Linux mounts control groups. Other systems have none.
inline constexpr char kControlGroupRoot[] = "/sys/fs/cgroup";

// Returns the text of /proc/self/cgroup, with a line "ID:CONTROLLERS:/PATH" for each group. Returns an empty text if
// there is no such file.
std::string ControlGroupMembership();

// Calls visit(directory, version) for each group that `membership` names for `controller` ("memory" or "cpu"). Also
// calls it for each parent of such a group, up to the root of the hierarchy, because the limits of parents apply too.
// `root` is the directory where control groups are mounted. `version`, 1 or 2, determines the names of the files in
// the directory.
void VisitControlGroups(std::string_view membership, std::string_view controller, const std::filesystem::path& root,
                        const std::function<void(const std::filesystem::path& directory, int version)>& visit);

// Returns the number of threads that this process can run at once, at least 1. All code that computes in parallel
// uses this number. It is the number of cores on which the scheduler may run the calling thread (its affinity), or
// the CPU quota of the control groups if that is less. On a system without affinity, all cores count.
int AvailableCores();

// Returns the smallest CPU quota, rounded up to whole cores, of all groups that VisitControlGroups visits.
// `membership` is the text of /proc/self/cgroup. Reads `cpu.max` (version 2), or `cpu.cfs_quota_us` and
// `cpu.cfs_period_us` (version 1). nullopt means that no quota is set.
std::optional<int> CgroupCores(std::string_view membership, const std::filesystem::path& root);

// Returns the bytes of memory that this process may use: the machine's memory, or the limit of a control group if
// that is less. Imports, page advice and the admission of jobs all use this number. Returns 1 GiB if the system does
// not tell.
uint64_t MemoryLimit();

// Returns the smallest memory limit of all groups that VisitControlGroups visits. `membership` is the text of
// /proc/self/cgroup, and `root` is /sys/fs/cgroup. Reads `memory.max` (version 2) or `memory.limit_in_bytes` (version
// 1). nullopt means that no limit is set.
std::optional<uint64_t> CgroupLimit(std::string_view membership, const std::filesystem::path& root);

// The memory of the machine, or of one control group, in bytes. `left` is the number of bytes that can still be
// allocated before the kernel has to reclaim pages.
struct MemoryLeft {
  uint64_t limit = 0;
  // Memory that the kernel cannot reclaim at once: all except clean, unmapped file pages and, in version 2,
  // reclaimable slab.
  uint64_t used = 0;
  uint64_t left = 0;    // limit - used, or 0 if more is used
  uint64_t mapped = 0;  // mapped file pages; they are part of `used`
  bool operator==(const MemoryLeft&) const = default;
};

// Measures the machine and each control group of this process, parents included. Returns the values of the one with
// the least memory left. nullopt means that the system does not tell.
std::optional<MemoryLeft> GetMemoryLeft();

// Computes GetMemoryLeft from the groups that `membership` (the text of /proc/self/cgroup) names below `root`
// (/sys/fs/cgroup), and from `meminfo` (the text of /proc/meminfo). Groups without a limit are ignored.
std::optional<MemoryLeft> MemoryLeftOf(std::string_view membership, const std::filesystem::path& root,
                                       std::string_view meminfo);

// Returns how many bytes of this process's mappings of `file` are in memory now, or 0 if the system does not tell.
uint64_t MappedBytesOf(const std::filesystem::path& file);
// Computes MappedBytesOf from `smaps`, the text of /proc/self/smaps.
uint64_t MappedBytesIn(std::string_view smaps, const std::filesystem::path& file);

// Counters that only rise: callers use the difference between two calls.
struct MemoryPressure {
  // The number of times that a group reached its limit and pages had to be reclaimed, summed over all groups. Read
  // from `high` and `max` of memory.events (version 2), or from memory.failcnt (version 1).
  uint64_t limit_hits = 0;
  // Microseconds in which at least one thread waited for memory. The value comes from the nearest group that reports
  // it (memory.pressure, "some"), or else from the machine.
  uint64_t stalled_micros = 0;
  bool operator==(const MemoryPressure&) const = default;
};

// Returns the counters of this process, or zeros if the system does not tell.
MemoryPressure GetMemoryPressure();

// Computes GetMemoryPressure. `machine_pressure` is the text of /proc/pressure/memory.
MemoryPressure MemoryPressureOf(std::string_view membership, const std::filesystem::path& root,
                                std::string_view machine_pressure);

// Returns the bytes of this process that are in RAM. 0 means that the system does not tell. Threads: safe anywhere.
uint64_t ResidentBytes();
// Gives the allocator's free memory back to the system, if the allocator can do so. Threads: safe anywhere.
void ReturnFreeHeap();

// Returns an id of the machine's present boot, or an empty string if the system does not tell.
std::string BootId();

// Free disk space that is reserved for the database. Once only the reserve is left, datasets, uploads and checkpoints
// wait for space, while the database may still be written.
// Threads: all methods are safe anywhere.
class DiskReserve {
 public:
  // Reserves nothing.
  DiskReserve() = default;
  // Reserves `bytes` of the file system that holds `folder`.
  DiskReserve(std::filesystem::path folder, uint64_t bytes) : folder_(std::move(folder)), bytes_(bytes) {}

  uint64_t bytes() const { return bytes_; }
  // Returns the free bytes of the file system, including the reserve. nullopt if nothing is reserved, or if the file
  // system does not tell.
  std::optional<uint64_t> Free() const;
  // Returns Ok if the whole reserve would still be free after `wanted` more bytes, or if Free() returns nullopt.
  // Errors: ResourceExhausted (transient, reason DISK_NEARLY_FULL, metadata `free` and `reserve`).
  absl::Status Check(uint64_t wanted = 0) const;

 private:
  std::filesystem::path folder_;
  uint64_t bytes_ = 0;
};

}  // namespace permafrost
