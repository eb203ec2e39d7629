// Logs by spdlog: the daemon's to stderr, each job's to its own file as well, always as text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "base/enum_names.h"
#include "telemetry/job_metrics.h"

namespace permafrost::telemetry {

// A log of bounded size as files: PATH, which is written, and PATH.START, what was written before it. START is the byte
// of the whole log at which the file begins, so that a place in the log keeps its number whatever is dropped. Threads:
// one writer; readers anywhere beside it.
struct LogSegment {
  std::filesystem::path path;
  int64_t start = 0, size = 0;
  int64_t end() const { return start + size; }
};

// Returns the segment that was written before PATH and is kept; nullopt: nothing was.
absl::StatusOr<std::optional<LogSegment>> FindOlderSegment(const std::filesystem::path& path);
// Renames PATH to PATH.START and removes the older segments: later lines go to a new PATH. Returns the bytes that were
// removed. Where a call failed after its rename, the next one does the rest.
absl::StatusOr<int64_t> RotateLog(const std::filesystem::path& path);

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
  // Appends to `path`. `max_bytes`: the oldest part of a longer log is dropped and counted; 0: nothing is. Errors:
  // Internal naming path and reason.
  static absl::StatusOr<std::unique_ptr<JobLog>> Open(const std::filesystem::path& path, JobMetrics& metrics,
                                                      int64_t max_bytes = 0);
  virtual ~JobLog() = default;
  virtual void Write(Severity severity, std::string_view line) = 0;
};

}  // namespace permafrost::telemetry
