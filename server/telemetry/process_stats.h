// The figures that the operating system gives about this process.
// Threads: safe anywhere. Errors: none; what the system does not report is 0.
#pragma once

#include <cstdint>

namespace permafrost::telemetry {

struct ProcessStats {
  uint64_t resident_bytes = 0;
  uint64_t virtual_bytes = 0;
  double cpu_seconds = 0;         // user and system
  double start_time_seconds = 0;  // Unix time
  int64_t threads = 0;
  int64_t open_fds = 0;
  int64_t max_fds = 0;
};

ProcessStats ReadProcessStats();

}  // namespace permafrost::telemetry
