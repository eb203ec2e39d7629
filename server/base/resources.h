// Tells what this process may use of the machine, whose control groups may say less: its cores, memory and disk.
// Threads: safe anywhere. Reads small files of the kernel at each call.
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

// The directory where the kernel mounts control groups (Linux; elsewhere there are none).
inline constexpr char kControlGroupRoot[] = "/sys/fs/cgroup";

// The text of /proc/self/cgroup, empty where there is none: a line "ID:CONTROLLERS:/PATH" for each group.
std::string ControlGroupMembership();

// Calls visit(directory, version) for each group that `membership` names for `controller` ("memory", "cpu") and for
// each of its parents, below `root`. Limits of parents hold too. version: 1 or 2, whose files have different names.
void VisitControlGroups(std::string_view membership, std::string_view controller, const std::filesystem::path& root,
                        const std::function<void(const std::filesystem::path& directory, int version)>& visit);

// How many threads this process can run at once, the one answer for whatever computes: the cores that the scheduler
// lets the calling thread use (its affinity), or fewer where a control group's quota of processor time is less. At
// least 1. Where the system knows no affinity: the machine's.
int AvailableCores();

// The least quota, in whole cores rounded up, of the groups of the controller "cpu" that `membership` (the text of
// /proc/self/cgroup) names and of their parents, below `root`: `cpu.max` (version 2), `cpu.cfs_quota_us` and
// `cpu.cfs_period_us` (version 1). nullopt: no quota is set.
std::optional<int> CgroupCores(std::string_view membership, const std::filesystem::path& root);

// How much memory this process may use, in bytes: the machine's, or less where a control group says so. The one answer
// for imports, page advice and the admission of jobs. 1 GiB where the system does not tell.
uint64_t MemoryLimit();

// The least `memory.max` (version 2) or `memory.limit_in_bytes` (version 1) of the groups that /proc/self/cgroup
// (`membership`, its text) names and of their parents, below `root` (/sys/fs/cgroup); nullopt: no limit is set.
std::optional<uint64_t> CgroupLimit(std::string_view membership, const std::filesystem::path& root);

// Tells how much memory may still be taken before the kernel has to take some back. The machine counts, and every
// control group that this process is in, parents included. It also tells how hard the kernel has had to work for memory
// so far.
struct MemoryLeft {
  uint64_t limit = 0;
  uint64_t used = 0;    // what cannot be taken back at once: all but file pages that are clean and not mapped
  uint64_t left = 0;    // limit - used, 0 where more is used
  uint64_t mapped = 0;  // of `used`: file pages that someone maps
  bool operator==(const MemoryLeft&) const = default;
};

// Returns the state of the machine or of the group that has the least left. nullopt: the system does not tell.
std::optional<MemoryLeft> GetMemoryLeft();

// Returns the same for the groups that `membership` (the text of /proc/self/cgroup) names, below `root`
// (/sys/fs/cgroup), and for `meminfo` (the text of /proc/meminfo). A group without a limit counts for nothing.
std::optional<MemoryLeft> MemoryLeftOf(std::string_view membership, const std::filesystem::path& root,
                                       std::string_view meminfo);

// Bytes of `file` that this process maps and that are in memory now; 0 where the system does not tell.
uint64_t MappedBytesOf(const std::filesystem::path& file);
// Returns the same from `smaps`, the text of /proc/self/smaps.
uint64_t MappedBytesIn(std::string_view smaps, const std::filesystem::path& file);

// Counters that only rise: what matters is by how much, from one call to the next.
struct MemoryPressure {
  // How often a group met its limit, so that pages had to be taken back: memory.events' high and max (version 2) or
  // memory.failcnt (version 1), over all groups.
  uint64_t limit_hits = 0;
  // How long some thread waited for memory, by the group nearest to the process that tells (memory.pressure, "some"),
  // else the machine's.
  uint64_t stalled_micros = 0;
  bool operator==(const MemoryPressure&) const = default;
};

// Returns zeros if the system does not tell.
MemoryPressure GetMemoryPressure();

// machine_pressure: the text of /proc/pressure/memory.
MemoryPressure MemoryPressureOf(std::string_view membership, const std::filesystem::path& root,
                                std::string_view machine_pressure);

// Memory of this process that is in RAM.
// Threads: safe anywhere.

// In bytes; 0: the operating system does not tell.
uint64_t ResidentBytes();
// Gives the allocator's free memory back to the system, where it can.
void ReturnFreeHeap();

// Names the present boot of the machine; empty where the system does not say.
std::string BootId();

// Room that is kept free on a disk, so that the database goes on where datasets, uploads and checkpoints have to wait.
// Threads: all methods are safe anywhere.
class DiskReserve {
 public:
  // Keeps nothing.
  DiskReserve() = default;
  // `bytes` of the file system that `folder` lies on.
  DiskReserve(std::filesystem::path folder, uint64_t bytes) : folder_(std::move(folder)), bytes_(bytes) {}

  uint64_t bytes() const { return bytes_; }
  // Bytes that are free for this process; nullopt where the file system does not tell.
  std::optional<uint64_t> Free() const;
  // ResourceExhausted (transient, reason DISK_NEARLY_FULL, metadata `free` and `reserve`) where less than the reserve
  // would be free after `wanted` more bytes. Ok where the file system does not tell.
  absl::Status Check(uint64_t wanted = 0) const;

 private:
  std::filesystem::path folder_;
  uint64_t bytes_ = 0;
};

}  // namespace permafrost
