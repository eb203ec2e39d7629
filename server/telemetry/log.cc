#include "telemetry/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/file.h"
#include "base/status.h"
#include "base/string_view.h"

namespace permafrost::telemetry {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<LogSegment>> ListSegments(const fs::path& path) {
  const std::string prefix = absl::StrCat(path.filename().string(), ".");
  std::vector<LogSegment> segments;
  PF_ASSIGN_OR_RETURN(const std::optional<std::vector<std::string>> names, ListDirectory(path.parent_path()));
  for (const std::string& name : names.value_or(std::vector<std::string>())) {
    LogSegment segment;
    if (!name.starts_with(prefix) || !absl::SimpleAtoi(absl::string_view(name).substr(prefix.size()), &segment.start)) {
      continue;
    }
    segment.path = path.parent_path() / name;
    std::error_code error;
    const auto size = fs::file_size(segment.path, error);
    // On an error, the writer has just removed the segment.
    if (error) continue;
    segment.size = static_cast<int64_t>(size);
    segments.push_back(std::move(segment));
  }
  return segments;
}

}  // namespace

absl::StatusOr<std::optional<LogSegment>> FindOlderSegment(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(const std::vector<LogSegment> segments, ListSegments(path));
  std::optional<LogSegment> newest;
  for (const LogSegment& segment : segments) {
    if (!newest || segment.start > newest->start) newest = segment;
  }
  return newest;
}

absl::StatusOr<int64_t> RotateLog(const fs::path& path) {
  PF_ASSIGN_OR_RETURN(std::vector<LogSegment> older, ListSegments(path));
  std::ranges::sort(older, {}, &LogSegment::start);
  int64_t start = 0;
  for (const LogSegment& segment : older) start = std::max(start, segment.end());
  const absl::Status renamed = Rename(path, fs::path(absl::StrCat(path.string(), ".", start)));
  if (absl::IsNotFound(renamed) && !older.empty()) {
    older.pop_back();
  } else {
    PF_RETURN_IF_ERROR(renamed);
  }
  int64_t removed = 0;
  for (const LogSegment& segment : older) {
    std::error_code error;
    if (fs::remove(segment.path, error)) removed += segment.size;
  }
  return removed;
}

namespace {

spdlog::level::level_enum Level(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return spdlog::level::info;
    case Severity::kWarning:
      return spdlog::level::warn;
    case Severity::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// Returns the format of a line: ISO 8601 time in UTC, padded level, message. %^ and %$ enclose the part that is
// coloured on a terminal.
std::unique_ptr<spdlog::formatter> Formatter() {
  return std::make_unique<spdlog::pattern_formatter>("%Y-%m-%dT%H:%M:%S.%eZ %^%-7l%$ %v",
                                                     spdlog::pattern_time_type::utc);
}

// Global, like spdlog's default logger.
std::atomic<LogFormat> log_format = LogFormat::kText;

std::string_view NameOf(Severity severity) {
  const spdlog::string_view_t name = spdlog::level::to_string_view(Level(severity));
  return {name.data(), name.size()};
}

// Returns the event as JSON. Invalid UTF-8 becomes U+FFFD, since a message cut in the middle of a character must
// still be valid JSON.
std::string JsonLine(Severity severity, std::string_view job, std::string_view line) {
  nlohmann::ordered_json event = {{"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", absl::Now(), absl::UTCTimeZone())},
                                  {"severity", NameOf(severity)},
                                  {"logger", "permafrostd"},
                                  {"message", line}};
  if (!job.empty()) event["job"] = job;
  return event.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void WriteEvent(Severity severity, const std::string& text) {
  spdlog::default_logger_raw()->log(Level(severity), "{}", text);
}

// Returns the text as one line, since an event must be one line. Line breaks become spaces.
std::string OneLine(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  std::string line(text);
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line;
}

class FileJobLog : public JobLog {
 public:
  FileJobLog(const std::filesystem::path& path, JobMetrics& metrics, int64_t max_bytes)
      : path_(path.string()), metrics_(metrics), max_bytes_(max_bytes) {
    OpenFile();
  }
  void Write(Severity severity, std::string_view line) override {
    std::string first_error;
    {
      const std::lock_guard<std::mutex> lock(mu_);
      const bool failed_before = !error_.empty();
      error_.clear();
      logger_->log(Level(severity), "{}", OneLine(line));
      if (error_.empty()) return DropOldest();
      if (!failed_before) first_error = error_;
    }
    metrics_.CountFailedLogLine();
    if (!first_error.empty()) {
      Log(Severity::kWarning, absl::StrCat("job log ", path_, ": a line could not be written: ", first_error));
    }
  }

 private:
  // Throws spdlog::spdlog_ex.
  void OpenFile() {
    logger_ = std::make_unique<spdlog::logger>("job", std::make_shared<spdlog::sinks::basic_file_sink_st>(path_));
    logger_->set_formatter(Formatter());
    logger_->flush_on(spdlog::level::trace);
    logger_->set_error_handler([this](const std::string& error) { error_ = error; });
  }
  // Rotates the log once PATH has reached half of max_bytes_. Two segments remain, each of about half of max_bytes_.
  // The caller holds mu_. If a rotation fails, the next line tries again.
  void DropOldest() {
    if (max_bytes_ == 0) return;
    std::error_code error;
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path_, error));
    // If PATH is missing, an earlier rotation failed after its rename. Lines still go to the renamed file, whose name
    // has its START.
    const bool is_renamed = error == std::errc::no_such_file_or_directory;
    if (!is_renamed && (error || size < max_bytes_ / 2)) return;
    const absl::Status rotated = Rotate();
    if (rotated.ok()) {
      rotation_failed_ = false;
    } else if (!std::exchange(rotation_failed_, true)) {
      Log(Severity::kWarning, absl::StrCat("job log ", path_, ": no new file: ", rotated.message()));
    }
  }
  absl::Status Rotate() {
    PF_ASSIGN_OR_RETURN(const int64_t removed, RotateLog(path_));
    if (removed > 0) metrics_.CountDroppedLog(removed);
    try {
      OpenFile();
    } catch (const spdlog::spdlog_ex& e) {
      return absl::InternalError(e.what());
    }
    return absl::OkStatus();
  }

  const std::string path_;
  JobMetrics& metrics_;
  const int64_t max_bytes_;
  bool rotation_failed_ = false;
  std::mutex mu_;
  std::string error_;  // error of the last line, under mu_; empty: none
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace

void InitLog(LogFormat format) {
  log_format = format;
  auto logger = std::make_shared<spdlog::logger>("permafrost", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
  if (format == LogFormat::kJson) {
    logger->set_pattern("%v");
  } else {
    logger->set_formatter(Formatter());
  }
  logger->flush_on(spdlog::level::trace);
  spdlog::set_default_logger(std::move(logger));
}

void Log(Severity severity, std::string_view line) {
  WriteEvent(severity, log_format == LogFormat::kJson ? JsonLine(severity, "", line) : OneLine(line));
}

void LogOfJob(Severity severity, std::string_view job, std::string_view line) {
  WriteEvent(severity, log_format == LogFormat::kJson ? JsonLine(severity, job, line)
                                                      : absl::StrCat("job ", AbslView(job), ": ", OneLine(line)));
}

absl::StatusOr<std::unique_ptr<JobLog>> JobLog::Open(const std::filesystem::path& path, JobMetrics& metrics,
                                                     int64_t max_bytes) {
  try {
    return std::make_unique<FileJobLog>(path, metrics, max_bytes);
  } catch (const spdlog::spdlog_ex& error) {
    return absl::InternalError(absl::StrCat("job log ", path.string(), ": ", error.what()));
  }
}

}  // namespace permafrost::telemetry
