// Logs by spdlog: the daemon's to stderr, each job's to its own file as well.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "telemetry/job_metrics.h"

namespace permafrost::telemetry {

enum class Severity { kInfo, kWarning, kError };

// The daemon's log: one line an event, ISO time in UTC, to stderr; coloured on a terminal only.
// Threads: safe anywhere.
void InitLog();
void Log(Severity severity, std::string_view line);

// A job's log file. Lines are flushed to the file as they are written. One that cannot be written is counted, and the
// first of such lines in a row is told in the daemon's log.
// Threads: safe anywhere. Borrows the metrics.
class JobLog {
 public:
  // Appends to `path`. `max_bytes`: of a longer log the oldest part is dropped and counted (log_segments.h); 0: none.
  // Errors: Internal naming path and reason.
  static absl::StatusOr<std::unique_ptr<JobLog>> Open(const std::filesystem::path& path, JobMetrics& metrics,
                                                      int64_t max_bytes = 0);
  virtual ~JobLog() = default;
  virtual void Write(Severity severity, std::string_view line) = 0;
};

}  // namespace permafrost::telemetry
