// The control groups that this process is in (Linux; elsewhere there are none).
// Threads: safe anywhere. Reads small files of the kernel at each call.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace permafrost {

// The directory where the kernel mounts them.
inline constexpr char kControlGroupRoot[] = "/sys/fs/cgroup";

// The text of /proc/self/cgroup, empty where there is none: a line "ID:CONTROLLERS:/PATH" for each group.
std::string ControlGroupMembership();

// Calls visit(directory, version) for each group that `membership` names for `controller` ("memory", "cpu") and for
// each of its parents, below `root`. Limits of parents hold too. version: 1 or 2, whose files have different names.
void VisitControlGroups(std::string_view membership, std::string_view controller, const std::filesystem::path& root,
                        const std::function<void(const std::filesystem::path& directory, int version)>& visit);

}  // namespace permafrost
