#include "base/resources.h"

#include <unistd.h>

#ifdef __APPLE__
#include <mach/mach.h>
#include <malloc/malloc.h>
#include <sys/sysctl.h>

#include <cstring>
#endif
#ifdef __linux__
#include <sched.h>

#include <cstdlib>  // defines __GLIBC__ if the C library is glibc
#ifdef __GLIBC__
#include <malloc.h>
#endif
#endif

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"

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

namespace {

namespace fs = std::filesystem;

// Returns nullopt for "max" and -1, which mean that there is no quota, and for other text that is not a positive
// number.
std::optional<int64_t> ReadNumber(std::istream&& in) {
  int64_t number = 0;
  if (!(in >> number) || number < 1) return std::nullopt;
  return number;
}

// The microseconds of processor time that a group may use in each period, and the length of the period.
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

namespace {

// Returns nullopt if there is no limit: "max", text that is not a number, or version 1's "unlimited", a number near
// 2^63.
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

namespace {

std::string ReadText(const fs::path& file) {
  std::ifstream in(file);
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

// Returns the first number of a text. Returns nullopt for "max", for text that is not a number, and for version 1's
// "unlimited", a number near 2^63.
std::optional<uint64_t> Number(std::string_view text) {
  text = text.substr(0, text.find_last_not_of(" \n") + 1);
  uint64_t number = 0;
  if (!absl::SimpleAtoi(AbslView(text), &number) || number >= uint64_t{1} << 62) return std::nullopt;
  return number;
}

// Returns the number after `key` in lines "KEY NUMBER" or "KEY: NUMBER kB".
std::optional<uint64_t> Field(std::string_view text, std::string_view key) {
  for (const absl::string_view line : absl::StrSplit(AbslView(text), '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, absl::ByAnyChar(": "), absl::SkipEmpty());
    if (words.size() < 2 || words[0] != AbslView(key)) continue;
    const auto number = Number({words[1].data(), words[1].size()});
    const bool kilobytes = words.size() > 2 && words[2] == "kB";
    return number && kilobytes ? std::optional(*number * 1024) : number;
  }
  return std::nullopt;
}

std::optional<MemoryLeft> OfMachine(std::string_view meminfo) {
  const auto total = Field(meminfo, "MemTotal"), available = Field(meminfo, "MemAvailable");
  if (!total || !available) return std::nullopt;
  const uint64_t takeable = std::min(*total, *available), mapped = Field(meminfo, "Mapped").value_or(0);
  const uint64_t left = takeable - std::min(takeable, mapped);
  return MemoryLeft{.limit = *total, .used = *total - left, .left = left, .mapped = std::min(takeable, mapped)};
}

std::optional<MemoryLeft> OfGroup(const fs::path& group, int version) {
  const bool first = version == 1;
  const auto limit = Number(ReadText(group / (first ? "memory.limit_in_bytes" : "memory.max")));
  const auto charged = Number(ReadText(group / (first ? "memory.usage_in_bytes" : "memory.current")));
  if (!limit || !charged) return std::nullopt;
  // The kernel can reclaim file pages at once if they are clean and unmapped. (Programs, libraries and the edges of a
  // graph are mapped.) Pages on the kernel's active list count as well: the kernel reclaims them too, only later.
  const std::string stat = ReadText(group / "memory.stat");
  const auto pages = [&](const char* name) {
    return Field(stat, first ? std::string("total_").append(name) : std::string(name)).value_or(0);
  };
  const uint64_t files = pages("inactive_file") + pages("active_file");
  const uint64_t dirty = first ? pages("dirty") + pages("writeback") : pages("file_dirty") + pages("file_writeback");
  const uint64_t mapped = pages(first ? "mapped_file" : "file_mapped");
  const uint64_t reclaimable = files - std::min(files, dirty + mapped) + (first ? 0 : pages("slab_reclaimable"));
  const uint64_t used = *charged - std::min(*charged, reclaimable);
  return MemoryLeft{
      .limit = *limit, .used = used, .left = *limit - std::min(*limit, used), .mapped = std::min(mapped, files)};
}

// Finds `total` in a line such as "some avg10=0.00 avg60=0.00 avg300=0.00 total=123".
std::optional<uint64_t> StalledMicros(std::string_view pressure) {
  for (const absl::string_view line : absl::StrSplit(AbslView(pressure), '\n')) {
    constexpr std::string_view kTotal = "total=";
    const std::string_view some(line.data(), line.size());
    const size_t total = some.find(kTotal);
    if (some.substr(0, 5) == "some " && total != some.npos) return Number(some.substr(total + kTotal.size()));
  }
  return std::nullopt;
}

}  // namespace

std::optional<MemoryLeft> MemoryLeftOf(std::string_view membership, const fs::path& root, std::string_view meminfo) {
  std::optional<MemoryLeft> least = OfMachine(meminfo);
  VisitControlGroups(membership, "memory", root, [&least](const fs::path& group, int version) {
    const std::optional<MemoryLeft> left = OfGroup(group, version);
    if (left && (!least || left->left < least->left)) least = left;
  });
  return least;
}

MemoryPressure MemoryPressureOf(std::string_view membership, const fs::path& root, std::string_view machine_pressure) {
  MemoryPressure pressure;
  std::optional<uint64_t> stalled;
  VisitControlGroups(membership, "memory", root, [&](const fs::path& group, int version) {
    if (version == 1) {
      pressure.limit_hits += Number(ReadText(group / "memory.failcnt")).value_or(0);
      return;
    }
    // memory.events.local counts the events of the group itself. memory.events also counts the events of the groups
    // below it.
    fs::path events = group / "memory.events.local";
    if (!fs::exists(events)) events = group / "memory.events";
    const std::string text = ReadText(events);
    pressure.limit_hits += Field(text, "high").value_or(0) + Field(text, "max").value_or(0);
    if (!stalled) stalled = StalledMicros(ReadText(group / "memory.pressure"));
  });
  pressure.stalled_micros = stalled ? *stalled : StalledMicros(machine_pressure).value_or(0);
  return pressure;
}

#ifdef __linux__
std::optional<MemoryLeft> GetMemoryLeft() {
  return MemoryLeftOf(ControlGroupMembership(), kControlGroupRoot, ReadText("/proc/meminfo"));
}

uint64_t MappedBytesIn(std::string_view smaps, const fs::path& file) {
  uint64_t bytes = 0;
  bool of_file = false;
  for (const absl::string_view line : absl::StrSplit(AbslView(smaps), '\n')) {
    // In smaps, the first line about a mapping begins with the address range "A-B" and ends with the path of the
    // file. Each further line about the mapping begins with a name and a colon.
    const bool begins = line.find('-') < line.find(' ');
    if (begins) of_file = absl::EndsWith(line, absl::StrCat(" ", file.string()));
    if (!of_file || begins || !absl::StartsWith(line, "Rss:")) continue;
    bytes += Field({line.data(), line.size()}, "Rss").value_or(0);
  }
  return bytes;
}

uint64_t MappedBytesOf(const fs::path& file) { return MappedBytesIn(ReadText("/proc/self/smaps"), file); }

MemoryPressure GetMemoryPressure() {
  return MemoryPressureOf(ControlGroupMembership(), kControlGroupRoot, ReadText("/proc/pressure/memory"));
}

// proc(5): statm counts pages. The second field is the resident size.
uint64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  if (!(in >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void ReturnFreeHeap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}
#endif

#ifdef __APPLE__

std::optional<MemoryLeft> GetMemoryLeft() {
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  vm_size_t page_bytes = 0;
  const mach_port_t host = mach_host_self();
  const bool told =
      host_page_size(host, &page_bytes) == KERN_SUCCESS &&
      host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count) == KERN_SUCCESS;
  mach_port_deallocate(mach_task_self(), host);
  if (!told) return std::nullopt;
  // `free_count` includes speculative pages already.
  const uint64_t free_pages = uint64_t{pages.free_count} + pages.external_page_count + pages.purgeable_count;
  const uint64_t limit = MemoryLimit(), left = std::min(limit, free_pages * page_bytes);
  return MemoryLeft{.limit = limit, .used = limit - left, .left = left};
}

MemoryPressure GetMemoryPressure() { return {}; }

uint64_t ResidentBytes() {
  mach_task_basic_info task{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t read =
      task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&task), &count);
  return read == KERN_SUCCESS ? task.resident_size : 0;
}

void ReturnFreeHeap() { malloc_zone_pressure_relief(nullptr, 0); }
#endif

std::string BootId() {
#ifdef __APPLE__
  char text[64];
  size_t size = sizeof text;
  if (sysctlbyname("kern.bootsessionuuid", text, &size, nullptr, 0) != 0) return "";
  return std::string(absl::StripAsciiWhitespace(absl::string_view(text, strnlen(text, size))));
#else
  const absl::StatusOr<std::string> text = ReadFile("/proc/sys/kernel/random/boot_id");
  return text.ok() ? std::string(absl::StripAsciiWhitespace(*text)) : "";
#endif
}

std::optional<uint64_t> DiskReserve::Free() const {
  if (folder_.empty()) return std::nullopt;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder_, error);
  if (error) return std::nullopt;
  return space.available;
}

absl::Status DiskReserve::Check(uint64_t wanted) const {
  if (bytes_ == 0) return absl::OkStatus();
  const std::optional<uint64_t> free = Free();
  if (!free || (*free >= bytes_ && *free - bytes_ >= wanted)) return absl::OkStatus();
  const std::string more = wanted == 0 ? "" : absl::StrCat(" for ", wanted, " more");
  return AsTransient(
      WithReason(absl::ResourceExhaustedError(absl::StrCat(folder_.string(), ": the disk is nearly full: ", *free,
                                                           " bytes are free", more, ", and --min-free-disk keeps ",
                                                           bytes_, "; delete datasets or jobs, or give it more room")),
                 "DISK_NEARLY_FULL", {{"free", absl::StrCat(*free)}, {"reserve", absl::StrCat(bytes_)}}));
}

}  // namespace permafrost
