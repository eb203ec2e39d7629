// Logs through spdlog. The daemon's log goes to stderr. Each job also has a log file of its own, which is always
// text.
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

// A part of a log of bounded size. Such a log has two files: PATH, to which lines are now written, and the older
// PATH.START. START is the position, in the whole log, of the first byte of PATH.START. So positions in the log stay
// valid when old parts are dropped.
// Threads: one writer, and any number of readers at the same time.
struct LogSegment {
  std::filesystem::path path;
  int64_t start = 0, size = 0;
  int64_t end() const { return start + size; }
};

// Returns the older segment, PATH.START; nullopt if there is none.
absl::StatusOr<std::optional<LogSegment>> FindOlderSegment(const std::filesystem::path& path);
// Renames PATH to PATH.START, so that later lines go to a new PATH, and removes the older segments. Returns the
// number of bytes removed. If a call fails after the rename, the next call does the rest.
absl::StatusOr<int64_t> RotateLog(const std::filesystem::path& path);

enum class Severity { kInfo, kWarning, kError };

// The format of the daemon's log, which has one line per event. kText: ISO time in UTC, severity and message,
// coloured only on a terminal. kJson: an object with time (RFC 3339, UTC), severity, logger and message. If the event
// concerns a job, the object also has `job`, the job's id.
enum class LogFormat { kText, kJson };
inline constexpr EnumNames<LogFormat, 2> kLogFormatNames{{{{LogFormat::kText, "text"}, {LogFormat::kJson, "json"}}}};

// Sets up the daemon's log. Call InitLog before other threads start. Log and LogOfJob are safe anywhere.
void InitLog(LogFormat format = LogFormat::kText);
void Log(Severity severity, std::string_view line);
// Logs a line about a job. In the text format, the line begins with "job ID: ". In JSON, the id is the field `job`.
void LogOfJob(Severity severity, std::string_view job, std::string_view line);

// A job's log file. Each line is flushed to the file as it is written. Lines that cannot be written are counted. The
// first of several consecutive failures is reported in the daemon's log.
// Threads: safe anywhere. Borrows the metrics.
class JobLog {
 public:
  // Appends to `path`. If the log grows beyond `max_bytes`, its oldest part is dropped, and the dropped bytes are
  // counted. 0 means no limit. Errors: Internal naming path and reason.
  static absl::StatusOr<std::unique_ptr<JobLog>> Open(const std::filesystem::path& path, JobMetrics& metrics,
                                                      int64_t max_bytes = 0);
  virtual ~JobLog() = default;
  virtual void Write(Severity severity, std::string_view line) = 0;
};

}  // namespace permafrost::telemetry
