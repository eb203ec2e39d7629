// Logs by spdlog: the daemon's to stderr, each job's to its own file as well, always as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "telemetry/job_metrics.h"

namespace permafrost::telemetry {

enum class Severity { kInfo, kWarning, kError };

// The form in which the daemon's log tells an event, one line each. text: ISO time in UTC, severity, message; coloured
// on a terminal only. json: an object with time (RFC 3339, UTC), severity, logger, message, and job where it concerns
// one.
enum class LogFormat { kText, kJson };
inline constexpr EnumNames<LogFormat, 2> kLogFormatNames{{{{LogFormat::kText, "text"}, {LogFormat::kJson, "json"}}}};

// The daemon's log, to stderr. InitLog before other threads; Log is safe anywhere.
void InitLog(LogFormat format = LogFormat::kText);
void Log(Severity severity, std::string_view line);
// Logs a line about a job: it begins with "job ID: ", or has the id apart.
void LogOfJob(Severity severity, std::string_view job, std::string_view line);

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
