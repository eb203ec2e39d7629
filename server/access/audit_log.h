// Keeps who changed what: a JSON line for each call of a method that changes something, in a file that only the
// daemon's user reads.
// Threads: all methods are safe anywhere.
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
  // PATH, then PATH.1 (the newest of them) to PATH.`kept`.
  std::filesystem::path path;
  // Bytes after which a file is set aside and the next begins.
  uint64_t max_bytes = uint64_t{16} << 20;
  // Files that are kept beside the one that is written; older ones are removed.
  int kept = 4;
  // Limits on lines of unknown callers: a burst, then so many a second. Beyond them only the number is kept, as
  // `dropped` in the next line, so that a flood does not wash out other lines.
  double unknown_burst = 100, unknown_per_second = 1;
};

struct AuditEntry {
  // As Caller::name; "unknown" for a call without a token that is known. Never a token.
  std::string caller;
  std::string role;      // empty: unknown
  std::string peer;      // "ipv4:127.0.0.1:5555", "unix:"; empty where gRPC does not tell: of a call that was refused
  std::string method;    // "permafrost.v1.JobService/CreateJob"
  std::string resource;  // "jobs/first"; empty: unknown, as the request was not read
  std::string code;      // "OK", "PERMISSION_DENIED"
};

class AuditLog {
 public:
  // Appends to the file. Errors: those of SystemError.
  static absl::StatusOr<std::unique_ptr<AuditLog>> Open(AuditOptions options);

  // Writes one line, which is in the file when it returns; a kill -9 leaves it there, a power cut may not. A line that
  // cannot be written is told in the daemon's log, once until it works again, and the call goes on. No line is glued to
  // half of another one.
  void Write(const AuditEntry& entry);

 private:
  AuditLog(AuditOptions options, Descriptor file, uint64_t bytes, bool ends_amid_a_line)
      : options_(std::move(options)),
        room_(options_.unknown_burst),
        file_(std::move(file)),
        bytes_(bytes),
        ends_amid_a_line_(ends_amid_a_line) {}
  // Returns whether there is room for one more line of a caller that is not known.
  bool TakeRoom() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Append(std::string line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After a write that stopped amid its line.
  void TakeBack(uint64_t written) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Rotate() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const AuditOptions options_;
  absl::Mutex mu_;
  Stopwatch since_room_ ABSL_GUARDED_BY(mu_);  // when room_ was reckoned last
  double room_ ABSL_GUARDED_BY(mu_);
  int64_t dropped_ ABSL_GUARDED_BY(mu_) = 0;
  std::optional<Descriptor> file_ ABSL_GUARDED_BY(mu_);
  uint64_t bytes_ ABSL_GUARDED_BY(mu_);
  bool ends_amid_a_line_ ABSL_GUARDED_BY(mu_);
  bool failed_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace permafrost::access
