// A file that arrives in pieces and appears whole, verified, or not at all.
// Threads: one.
// Invariant: `path` is untouched until Commit() succeeds; nothing else is left behind.
// Owns the temporary file beside `path`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/hash.h"

namespace permafrost::client {

class ReceivedFile {
 public:
  static absl::StatusOr<ReceivedFile> Create(const std::string& path);
  ReceivedFile(ReceivedFile&& other) noexcept;
  ReceivedFile& operator=(ReceivedFile&&) = delete;
  // Removes what was not committed.
  ~ReceivedFile();

  absl::Status Append(std::string_view data);
  // Errors: DataLoss if size or XXH3-64 (16 hex digits) are not those that the sender names; the system's reason where
  // the file cannot be written.
  absl::Status Commit(int64_t total_bytes, std::string_view xxh3);

 private:
  ReceivedFile(std::string path, std::string temporary, int fd);

  std::string path_;
  std::string temporary_;
  int fd_;
  int64_t size_ = 0;
  StreamHash hash_;
};

}  // namespace permafrost::client
