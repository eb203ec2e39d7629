#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/control_group.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

// "max" and what is no number are no limit; so is version 1's "unlimited", a number near 2^63.
std::optional<uint64_t> ReadLimit(const fs::path& file) {
  std::ifstream in(file);
  uint64_t bytes = 0;
  if (!(in >> bytes) || bytes >= uint64_t{1} << 62) return std::nullopt;
  return bytes;
}

}  // namespace

std::optional<uint64_t> CgroupLimit(std::string_view membership, const fs::path& root) {
  std::optional<uint64_t> least;
  VisitControlGroups(membership, "memory", root, [&least](const fs::path& group, int version) {
    const auto limit = ReadLimit(group / (version == 1 ? "memory.limit_in_bytes" : "memory.max"));
    if (limit) least = std::min(least.value_or(*limit), *limit);
  });
  return least;
}

uint64_t MemoryLimit() {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  constexpr uint64_t kUnknown = uint64_t{1} << 30;
  const uint64_t machine =
      pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : kUnknown;
  return std::min(machine, CgroupLimit(ControlGroupMembership(), kControlGroupRoot).value_or(machine));
}

}  // namespace permafrost
