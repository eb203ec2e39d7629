// Files that a command writes: where they go, and one that arrives in pieces and appears whole, verified, or not at
// all.
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

// The target of a command's file: a file that is replaced whole, or a pipe, a device or standard output, which take
// bytes as they come and are never replaced.
// Threads: one.
class OutputTarget {
 public:
  // "-" is standard output, and so is a path that leads to it, as /dev/stdout does. Waits until someone reads a named
  // pipe. Creates no file. Errors: the system's reason; FailedPrecondition for a directory, a socket or a disk.
  static absl::StatusOr<OutputTarget> Open(const std::string& path);

  // The path as it was given, or "standard output".
  const std::string& name() const { return name_; }
  bool is_stdout() const { return is_stdout_; }
  // A person reads what is written.
  bool is_terminal() const;
  bool is_file() const { return !stream_.valid(); }
  // That is replaced, where is_file().
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

// Writes all of a text: a file appears whole or not at all.
absl::Status WriteOutput(const OutputTarget& target, std::string_view text);

// A file that arrives in pieces and appears whole, verified, or not at all.
// Invariant: the target is untouched until Commit(); nothing else is left behind.
// Owns the temporary file: beside the file that it replaces, or, of a stream, one without a name.
class ReceivedFile {
 public:
  static absl::StatusOr<ReceivedFile> Create(OutputTarget target);
  ReceivedFile(ReceivedFile&& other) noexcept;
  ReceivedFile& operator=(ReceivedFile&&) = delete;
  // Removes what was not committed.
  ~ReceivedFile();

  const OutputTarget& target() const { return target_; }
  absl::Status Append(std::string_view data);
  // Errors: DataLoss if size or XXH3-64 (16 hex digits) are not those that the sender names; the system's reason where
  // the file cannot be written.
  absl::Status Commit(int64_t total_bytes, std::string_view xxh3);

 private:
  ReceivedFile(OutputTarget target, std::string temporary, Descriptor file);
  // Copies the temporary file into the stream.
  absl::Status Copy() const;

  OutputTarget target_;
  std::string temporary_;  // empty: it has no name any more
  Descriptor file_;
  int64_t size_ = 0;
  StreamHash hash_;
};

}  // namespace permafrost::client
