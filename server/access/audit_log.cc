#include "access/audit_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/string_view.h"
#include "telemetry/log.h"

namespace permafrost::access {
namespace {

namespace fs = std::filesystem;

constexpr mode_t kAuditMode = 0600;

absl::StatusOr<Descriptor> OpenToAppend(const fs::path& path) {
  Descriptor file = OpenRetrying(path, O_WRONLY | O_APPEND | O_CREAT, kAuditMode);
  if (!file.valid()) return SystemError(errno, path, "open");
  return file;
}

// Returns whether the last line of the file, whose size is `bytes`, lacks its newline. A power cut may cause this.
absl::StatusOr<bool> EndsAmidALine(const fs::path& path, uint64_t bytes) {
  if (bytes == 0) return false;
  Descriptor file = OpenRetrying(path, O_RDONLY);
  char last = 0;
  if (!file.valid() || pread(file.get(), &last, 1, static_cast<off_t>(bytes - 1)) != 1) {
    return SystemError(errno, path, "read");
  }
  return last != '\n';
}

fs::path Numbered(const fs::path& path, int number) { return absl::StrCat(path.string(), ".", number); }

std::string LineOf(const AuditEntry& entry, int64_t dropped) {
  nlohmann::ordered_json line{{"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone())},
                              {"caller", entry.caller}};
  const auto add = [&line](const char* key, const std::string& value) {
    if (!value.empty()) line[key] = value;
  };
  add("role", entry.role);
  add("peer", entry.peer);
  add("method", entry.method);
  add("resource", entry.resource);
  add("code", entry.code);
  if (dropped > 0) line["dropped"] = dropped;
  // Names come from requests, and may be invalid UTF-8.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

absl::StatusOr<std::unique_ptr<AuditLog>> AuditLog::Open(AuditOptions options) {
  absl::StatusOr<Descriptor> file = OpenToAppend(options.path);
  if (!file.ok()) return file.status();
  struct stat info {};
  if (fstat(file->get(), &info) != 0) return SystemError(errno, options.path, "stat");
  const auto bytes = static_cast<uint64_t>(info.st_size);
  const absl::StatusOr<bool> ends_amid_a_line = EndsAmidALine(options.path, bytes);
  if (!ends_amid_a_line.ok()) return ends_amid_a_line.status();
  return std::unique_ptr<AuditLog>(new AuditLog(std::move(options), *std::move(file), bytes, *ends_amid_a_line));
}

bool AuditLog::TakeRoom() {
  room_ = std::min(options_.unknown_burst,
                   room_ + options_.unknown_per_second * absl::ToDoubleSeconds(since_room_.Elapsed()));
  since_room_.Restart();
  if (room_ < 1) return false;
  room_ -= 1;
  return true;
}

void AuditLog::Write(const AuditEntry& entry) {
  const absl::MutexLock lock(&mu_);
  if (entry.role.empty() && !TakeRoom()) {
    ++dropped_;
    return;
  }
  const absl::Status written = Append(LineOf(entry, dropped_));
  if (written.ok()) dropped_ = 0;
  if (!written.ok() && !failed_) {
    telemetry::Log(telemetry::Severity::kError,
                   absl::StrCat("calls are not audited until it can be written: ", written.message()));
  }
  failed_ = !written.ok();
}

absl::Status AuditLog::Append(std::string line) {
  if (!file_ || (bytes_ > 0 && bytes_ + line.size() > options_.max_bytes)) {
    if (absl::Status rotated = Rotate(); !rotated.ok()) return rotated;
  }
  if (ends_amid_a_line_) line = absl::StrCat("\n", line);
  // With O_APPEND, write() writes a line whole, except when the disk is full.
  ssize_t written = -1;
  do {
    written = write(file_->get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written < 0) return SystemError(errno, options_.path, "write");
  bytes_ += static_cast<uint64_t>(written);
  if (static_cast<size_t>(written) == line.size()) {
    ends_amid_a_line_ = false;
    return absl::OkStatus();
  }
  TakeBack(static_cast<uint64_t>(written));
  return SystemError(ENOSPC, options_.path, "write");
}

void AuditLog::TakeBack(uint64_t written) {
  // Uses the file's current size, because somebody may have truncated the file. From an outdated size, ftruncate
  // would extend the file with zeros.
  struct stat info {};
  const bool known = fstat(file_->get(), &info) == 0 && static_cast<uint64_t>(info.st_size) >= written;
  if (known && ftruncate(file_->get(), info.st_size - static_cast<off_t>(written)) == 0) {
    bytes_ -= written;
  } else {
    ends_amid_a_line_ = true;
  }
}

absl::Status AuditLog::Rotate() {
  file_.reset();
  std::error_code error;
  if (bytes_ > 0) {
    fs::remove(Numbered(options_.path, options_.kept), error);
    for (int number = options_.kept; number > 1; --number) {
      // A missing file is not an error.
      fs::rename(Numbered(options_.path, number - 1), Numbered(options_.path, number), error);
    }
    error.clear();
    if (options_.kept > 0) {
      fs::rename(options_.path, Numbered(options_.path, 1), error);
    } else {
      fs::remove(options_.path, error);
    }
    if (error) return SystemError(error.value(), options_.path, "rename");
    bytes_ = 0;
    ends_amid_a_line_ = false;
  }
  absl::StatusOr<Descriptor> file = OpenToAppend(options_.path);
  if (!file.ok()) return file.status();
  file_.emplace(*std::move(file));
  return absl::OkStatus();
}

}  // namespace permafrost::access
