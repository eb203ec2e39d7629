// Tells how much memory may still be taken before the kernel has to take some back: of the machine and of every control
// group that this process is in, parents too. And how hard the kernel had to work for it so far.
// Threads: safe anywhere. Reads small files of the kernel at each call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace permafrost {

struct MemoryLeft {
  uint64_t limit = 0;
  uint64_t used = 0;    // what cannot be taken back at once: all but file pages that are clean and not mapped
  uint64_t left = 0;    // limit - used, 0 where more is used
  uint64_t mapped = 0;  // of `used`: file pages that someone maps
  bool operator==(const MemoryLeft&) const = default;
};

// Returns the state of the machine or of the group that has the least left. nullopt: the system does not tell.
std::optional<MemoryLeft> GetMemoryLeft();

// The same of the groups that `membership` (the text of /proc/self/cgroup) names, below `root` (/sys/fs/cgroup), and
// of `meminfo` (the text of /proc/meminfo). A group without a limit counts for nothing.
std::optional<MemoryLeft> MemoryLeftOf(std::string_view membership, const std::filesystem::path& root,
                                       std::string_view meminfo);

// Bytes of `file` that this process maps and that are in memory now; 0 where the system does not tell.
uint64_t MappedBytesOf(const std::filesystem::path& file);
// The same of `smaps`, the text of /proc/self/smaps.
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

// Zeros where the system does not tell.
MemoryPressure GetMemoryPressure();

// machine_pressure: the text of /proc/pressure/memory.
MemoryPressure MemoryPressureOf(std::string_view membership, const std::filesystem::path& root,
                                std::string_view machine_pressure);

}  // namespace permafrost
