#include "telemetry/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#ifdef __APPLE__
#include <libproc.h>
#include <mach/mach.h>
#endif
#ifdef __linux__
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#endif

#include "base/resources.h"

namespace permafrost::telemetry {

#ifdef __APPLE__

namespace {

double Seconds(const timeval& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6; }

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  mach_task_basic_info task{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  if (task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&task), &count) == KERN_SUCCESS) {
    stats.virtual_bytes = task.virtual_size;
  }
  stats.resident_bytes = ResidentBytes();
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) stats.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  proc_taskallinfo info{};
  if (proc_pidinfo(getpid(), PROC_PIDTASKALLINFO, 0, &info, sizeof(info)) == static_cast<int>(sizeof(info))) {
    stats.threads = info.ptinfo.pti_threadnum;
    stats.start_time_seconds =
        static_cast<double>(info.pbsd.pbi_start_tvsec) + static_cast<double>(info.pbsd.pbi_start_tvusec) * 1e-6;
    stats.open_fds = static_cast<int64_t>(info.pbsd.pbi_nfiles);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

#endif
#ifdef __linux__

namespace {

std::string ReadAll(const char* path) {
  std::ifstream in(path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Unix time of the machine's boot; it does not change, but for clock corrections.
double BootTime() {
  for (absl::string_view line : absl::StrSplit(ReadAll("/proc/stat"), '\n')) {
    double seconds = 0;
    if (absl::ConsumePrefix(&line, "btime ") && absl::SimpleAtod(line, &seconds)) return seconds;
  }
  return 0;
}

int64_t CountOpenFds() {
  std::error_code error;
  int64_t count = 0;
  for (std::filesystem::directory_iterator it("/proc/self/fd", error), end; !error && it != end; it.increment(error)) {
    ++count;
  }
  return count > 0 ? count - 1 : 0;  // the listing itself holds one
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  const std::string stat = ReadAll("/proc/self/stat");
  // proc(5): fields are counted from 1; the second, the program's name, is in parentheses and may hold spaces.
  if (const size_t name_end = stat.rfind(')'); name_end != std::string::npos) {
    const std::vector<absl::string_view> fields =
        absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ', absl::SkipEmpty());
    const auto field = [&](size_t number) {
      uint64_t value = 0;
      const size_t index = number - 3;
      return index < fields.size() && absl::SimpleAtoi(fields[index], &value) ? value : 0;
    };
    const double ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
    stats.cpu_seconds = static_cast<double>(field(14) + field(15)) / ticks;
    stats.threads = static_cast<int64_t>(field(20));
    stats.start_time_seconds = BootTime() + static_cast<double>(field(22)) / ticks;
    stats.virtual_bytes = field(23);
  }
  stats.resident_bytes = ResidentBytes();
  stats.open_fds = CountOpenFds();
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) stats.max_fds = static_cast<int64_t>(limit.rlim_cur);
  return stats;
}

#endif

}  // namespace permafrost::telemetry
