// A file that arrives in pieces and appears whole, verified, or not at all.
// Threads: one.
// Invariant: the target is untouched until Commit(); nothing else is left behind.
// Owns the temporary file: beside the file that it replaces, or, of a stream, one without a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/hash.h"
#include "client/output_target.h"

namespace permafrost::client {

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
  // From the temporary file into the stream.
  absl::Status Copy() const;

  OutputTarget target_;
  std::string temporary_;  // empty: it has no name any more
  Descriptor file_;
  int64_t size_ = 0;
  StreamHash hash_;
};

}  // namespace permafrost::client
