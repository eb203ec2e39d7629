// The files that a command writes: where they go, and files that arrive in pieces. A received file appears whole and
// verified, or not at all.
// Threads: one.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/hash.h"

namespace permafrost::client {

// The target of a command's output: a file, or a stream (a pipe, a device or standard output). A file is replaced as
// a whole. A stream takes bytes as they come and is never replaced.
// Threads: one.
class OutputTarget {
 public:
  // "-" is standard output, and so is a path that leads to it, such as /dev/stdout. Opening a named pipe waits until
  // someone reads it. Creates no file. Errors: the system's reason, or FailedPrecondition for a directory, a socket
  // or a block device.
  static absl::StatusOr<OutputTarget> Open(const std::string& path);

  // Returns the path as it was given, or "standard output".
  const std::string& name() const { return name_; }
  bool is_stdout() const { return is_stdout_; }
  // Returns whether the target is a terminal, where a person reads the output.
  bool is_terminal() const;
  bool is_file() const { return !stream_.valid(); }
  // Returns the file that will be replaced. Requires is_file().
  const std::filesystem::path& file() const { return file_; }
  // Writes all of `data` to a stream. Errors: the system's reason.
  absl::Status Write(std::string_view data) const;

 private:
  OutputTarget(std::string name, std::filesystem::path file, Descriptor stream, bool is_stdout);

  std::string name_;
  std::filesystem::path file_;
  Descriptor stream_;
  bool is_stdout_;
};

// Writes the whole text. If the target is a file, the file appears whole or not at all.
absl::Status WriteOutput(const OutputTarget& target, std::string_view text);

// A file that arrives in pieces and appears whole and verified, or not at all.
// Invariant: the target is untouched until Commit(), and no other file is left behind.
// Memory: the object owns a temporary file. If the target is a file, the temporary file lies beside it. If the target
// is a stream, the temporary file has no name.
class ReceivedFile {
 public:
  static absl::StatusOr<ReceivedFile> Create(OutputTarget target);
  ReceivedFile(ReceivedFile&& other) noexcept;
  ReceivedFile& operator=(ReceivedFile&&) = delete;
  // Removes the temporary file if it was not committed.
  ~ReceivedFile();

  const OutputTarget& target() const { return target_; }
  absl::Status Append(std::string_view data);
  // Verifies the bytes and moves them to the target. Errors: DataLoss if the size or the XXH3-64 (16 hex digits)
  // differs from the sender's; the system's reason if the target cannot be written.
  absl::Status Commit(int64_t total_bytes, std::string_view xxh3);

 private:
  ReceivedFile(OutputTarget target, std::string temporary, Descriptor file);
  // Copies the temporary file to the stream.
  absl::Status Copy() const;

  OutputTarget target_;
  std::string temporary_;  // empty if the file never had a name or no longer has one
  Descriptor file_;
  int64_t size_ = 0;
  StreamHash hash_;
};

}  // namespace permafrost::client
