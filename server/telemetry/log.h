// Logs by spdlog: the daemon's to stderr, each job's to its own file as well.
#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"

namespace permafrost::telemetry {

enum class Severity { kInfo, kWarning, kError };

// The daemon's log: one line an event, ISO time in UTC, to stderr; coloured on a terminal only.
// Threads: safe anywhere.
void InitLog();
void Log(Severity severity, std::string_view line);

// A job's log file. Lines are flushed to the file as they are written.
// Threads: safe anywhere.
class JobLog {
 public:
  // Appends to `path`. Errors: Internal naming path and reason.
  static absl::StatusOr<std::unique_ptr<JobLog>> Open(const std::filesystem::path& path);
  virtual ~JobLog() = default;
  virtual void Write(Severity severity, std::string_view line) = 0;
};

}  // namespace permafrost::telemetry
