// Tells how much memory this process may use: the machine's, or less where a control group says so. The one answer for
// imports, page advice and the admission of jobs.
// Threads: safe anywhere. Reads small files of the kernel at each call.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace permafrost {

// Bytes. 1 GiB where the system does not tell.
uint64_t MemoryLimit();

// The least `memory.max` (version 2) or `memory.limit_in_bytes` (version 1) of the groups that /proc/self/cgroup
// (`membership`, its text) names and of their parents, below `root` (/sys/fs/cgroup); nullopt: no limit is set.
std::optional<uint64_t> CgroupLimit(std::string_view membership, const std::filesystem::path& root);

}  // namespace permafrost
