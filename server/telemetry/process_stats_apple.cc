#ifdef __APPLE__

#include <libproc.h>
#include <mach/mach.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/resources.h"
#include "telemetry/process_stats.h"

namespace permafrost::telemetry {
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

}  // namespace permafrost::telemetry

#endif
