#include "base/cores.h"

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <thread>

#include "base/control_group.h"

namespace permafrost {
namespace {

namespace fs = std::filesystem;

// "max" and -1, which are no quota, are nullopt too.
std::optional<int64_t> ReadNumber(std::istream&& in) {
  int64_t number = 0;
  if (!(in >> number) || number < 1) return std::nullopt;
  return number;
}

// Microseconds of processor time that a group has in each period.
struct Quota {
  std::optional<int64_t> time, period;
};

Quota ReadQuota(const fs::path& group, int version) {
  if (version == 1) {
    return {ReadNumber(std::ifstream(group / "cpu.cfs_quota_us")),
            ReadNumber(std::ifstream(group / "cpu.cfs_period_us"))};
  }
  std::ifstream in(group / "cpu.max");
  Quota quota;
  int64_t time = 0, period = 0;
  if (in >> time >> period && time > 0 && period > 0) quota = {time, period};
  return quota;
}

int SchedulerCores() {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace

std::optional<int> CgroupCores(std::string_view membership, const fs::path& root) {
  std::optional<int> least;
  VisitControlGroups(membership, "cpu", root, [&least](const fs::path& group, int version) {
    const Quota quota = ReadQuota(group, version);
    if (!quota.time || !quota.period) return;
    const int64_t cores = (*quota.time - 1) / *quota.period + 1;
    least = static_cast<int>(std::min<int64_t>(least.value_or(std::numeric_limits<int>::max()), cores));
  });
  return least;
}

int AvailableCores() {
  const int cores = SchedulerCores();
  return std::min(cores, CgroupCores(ControlGroupMembership(), kControlGroupRoot).value_or(cores));
}

}  // namespace permafrost
