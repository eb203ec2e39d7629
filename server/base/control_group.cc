#include "base/control_group.h"

#include <algorithm>
#include <fstream>
#include <iterator>

namespace permafrost {
namespace {

// Returns whether `list` ("cpu,cpuacct") names `controller`.
bool Names(std::string_view list, std::string_view controller) {
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    if (name == controller) return true;
    list.remove_prefix(std::min(list.size(), name.size() + 1));
  }
  return false;
}

}  // namespace

std::string ControlGroupMembership() {
  std::ifstream in("/proc/self/cgroup");
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

void VisitControlGroups(std::string_view membership, std::string_view controller, const std::filesystem::path& root,
                        const std::function<void(const std::filesystem::path& directory, int version)>& visit) {
  while (!membership.empty()) {
    const std::string_view line = membership.substr(0, membership.find('\n'));
    membership.remove_prefix(std::min(membership.size(), line.size() + 1));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && !Names(controllers, controller)) continue;
    const std::filesystem::path base = unified ? root : root / controller;
    std::filesystem::path group = std::filesystem::path(line.substr(second + 1)).relative_path();
    for (;;) {
      visit(base / group, unified ? 2 : 1);
      if (group.empty()) break;
      group = group.parent_path();
    }
  }
}

}  // namespace permafrost
