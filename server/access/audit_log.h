// Records who changed what: one JSON line for each call of a method that changes something. Only the daemon's user
// can read the file.
// Threads: all methods are thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "base/file.h"
#include "base/monotonic.h"

namespace permafrost::access {

struct AuditOptions {
  // The log is written to `path`. Older files are `path`.1 (the newest) to `path`.`kept`.
  std::filesystem::path path;
  // When a line would exceed this size in bytes, the file is renamed and a new one begins.
  uint64_t max_bytes = uint64_t{16} << 20;
  // The number of older files to keep. The oldest file beyond this number is removed.
  int kept = 4;
  // Limits on the lines of unknown callers: `unknown_burst` lines at once, then `unknown_per_second`. A call beyond
  // the limits gets no line. In the next written line, the field `dropped` is the number of calls that got no line. A
  // flood of calls thus cannot push out other lines.
  double unknown_burst = 100, unknown_per_second = 1;
};

struct AuditEntry {
  // Caller::name, or "unknown" for a call without a known token. Never a token.
  std::string caller;
  std::string role;      // empty: unknown
  std::string peer;      // "ipv4:127.0.0.1:5555", "unix:"; empty for a refused call, whose peer gRPC does not reveal
  std::string method;    // "permafrost.v1.JobService/CreateJob"
  std::string resource;  // "jobs/first"; empty: unknown, because the request was not read
  std::string code;      // "OK", "PERMISSION_DENIED"
};

class AuditLog {
 public:
  // Opens the file for appending. Errors: those of SystemError.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(AuditOptions options);

  // Writes one line. When Write returns, the line is in the file. It survives a kill -9, but perhaps not a power cut.
  // If the line cannot be written, the call that it records goes on. The daemon's log reports only the first of
  // consecutive failures. No line is appended to a partial line that a failed write or a power cut left.
  void Write(const AuditEntry& entry);

 private:
  AuditLog(AuditOptions options, Descriptor file, uint64_t bytes, bool ends_amid_a_line)
      : options_(std::move(options)),
        room_(options_.unknown_burst),
        file_(std::move(file)),
        bytes_(bytes),
        ends_amid_a_line_(ends_amid_a_line) {}
  // Takes one line from the allowance of unknown callers (`unknown_burst`). Returns false if the allowance is used
  // up.
  bool TakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Append(std::string line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Removes the `written` bytes of a line that could not be written whole.
  void TakeBack(uint64_t written) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Rotate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const AuditOptions options_;
  absl::Mutex mu_;
  Stopwatch since_room_ ABSL_GUARDED_BY(mu_);  // since room_ was last refilled
  double room_ ABSL_GUARDED_BY(mu_);
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<Descriptor> file_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_);
  bool ends_amid_a_line_ ABSL_GUARDED_BY(mu_);
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace permafrost::access
