// Logs by spdlog. The daemon's log goes to stderr. Each job's log also goes to a file of its own, always as text.
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

// A log of bounded size consists of PATH, which is being written, and PATH.START, which was written before. START is
// the offset of that file's first byte in the whole log. Positions in the log thus stay valid whatever is dropped.
// Threads: one writer, and any number of readers at the same time.
struct LogSegment {
  std::filesystem::path path;
  int64_t start = 0, size = 0;
  int64_t end() const { return start + size; }
};

// Returns the kept segment that was written before PATH; nullopt if there is none.
absl::StatusOr<std::optional<LogSegment>> FindOlderSegment(const std::filesystem::path& path);
// Renames PATH to PATH.START, so that later lines go to a new PATH, and removes the older segments. Returns the
// number of bytes removed. If a call fails after its rename, the next call does the rest.
absl::StatusOr<int64_t> RotateLog(const std::filesystem::path& path);

enum class Severity { kInfo, kWarning, kError };

// The format of the daemon's log, which has one line per event. kText: ISO time in UTC, severity and message,
// coloured only on a terminal. kJson: an object with time (RFC 3339, UTC), severity, logger and message, and with job
// if the event concerns one.
enum class LogFormat { kText, kJson };
inline constexpr EnumNames<LogFormat, 2> kLogFormatNames{{{{LogFormat::kText, "text"}, {LogFormat::kJson, "json"}}}};

// The daemon's log, to stderr. Call InitLog before other threads start; Log is safe anywhere.
void InitLog(LogFormat format = LogFormat::kText);
void Log(Severity severity, std::string_view line);
// Logs a line about a job. As text it begins with "job ID: "; in JSON the id is a field.
void LogOfJob(Severity severity, std::string_view job, std::string_view line);

// A job's log file. Each line is flushed to the file as it is written. Lines that cannot be written are counted, and
// the first of consecutive failures is reported in the daemon's log.
// Threads: safe anywhere. Borrows the metrics.
class JobLog {
 public:
  // Appends to `path`. If the log grows beyond `max_bytes`, its oldest part is dropped and counted; 0 means no limit.
  // Errors: Internal naming path and reason.
  static absl::StatusOr<std::unique_ptr<JobLog>> Open(const std::filesystem::path& path, JobMetrics& metrics,
                                                      int64_t max_bytes = 0);
  virtual ~JobLog() = default;
  virtual void Write(Severity severity, std::string_view line) = 0;
};

}  // namespace permafrost::telemetry
