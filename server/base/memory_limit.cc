#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>

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
  // Lines "ID:CONTROLLERS:/PATH".
  while (!membership.empty()) {
    const std::string_view line = membership.substr(0, membership.find('\n'));
    membership.remove_prefix(std::min(membership.size(), line.size() + 1));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && controllers.find("memory") == controllers.npos) continue;
    const fs::path base = unified ? root : root / "memory";
    const char* name = unified ? "memory.max" : "memory.limit_in_bytes";
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    for (;;) {
      if (const auto limit = ReadLimit(base / group / name)) least = least ? std::min(*least, *limit) : *limit;
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
  return least;
}

uint64_t MemoryLimit() {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  constexpr uint64_t kUnknown = uint64_t{1} << 30;
  const uint64_t machine =
      pages > 0 && page_bytes > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes) : kUnknown;
  std::ifstream membership("/proc/self/cgroup");
  const std::string text{std::istreambuf_iterator<char>(membership), {}};
  return std::min(machine, CgroupLimit(text, "/sys/fs/cgroup").value_or(machine));
}

}  // namespace permafrost
