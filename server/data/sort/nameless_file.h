// Keeps temporary data of an import on disk: values that do not fit in memory, or whose section cannot be written
// yet.
// Threads: one at a time. A NamelessFile owns its file on disk. This file has no name, so the system deletes it when
// the process ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/monotonic.h"
#include "data/store/store_writer.h"

namespace permafrost::data {

class NamelessFile {
 public:
  static absl::StatusOr<NamelessFile> Create(const std::filesystem::path& directory);
  // Errors: a transient ResourceExhausted if the disk is full; Cancelled if `stop` is requested. The call checks
  // `stop` before each piece that it writes.
  absl::Status Append(std::span<const std::byte> bytes, const std::stop_token& stop) {
    return Write(size_, bytes, stop);
  }
  // Same as Append, but writes at `offset`. Gaps between written bytes read as zeros.
  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes, const std::stop_token& stop);
  // Fills `out` with the bytes from `offset` on. The whole range must lie within size().
  absl::Status Read(uint64_t offset, std::span<std::byte> out) const;
  uint64_t size() const { return size_; }

 private:
  NamelessFile(std::filesystem::path directory, Descriptor file)
      : directory_(std::move(directory)), file_(std::make_unique<Descriptor>(std::move(file))) {}
  std::filesystem::path directory_;  // for error messages
  std::unique_ptr<Descriptor> file_;
  uint64_t size_ = 0;
};

// Keeps the values of a section while the writer is busy with another section. Memory: a buffer.
class WaitingColumn {
 public:
  WaitingColumn(std::filesystem::path directory, std::stop_token stop)
      : directory_(std::move(directory)), stop_(std::move(stop)) {}

  template <class T>
  absl::Status Append(std::span<const T> values) {
    return AppendBytes(std::as_bytes(values));
  }
  absl::Status AppendBytes(std::span<const std::byte> bytes);
  // Writes all values as a section.
  absl::Status MoveTo(GraphWriter& writer, SectionKind kind, ElementType type, uint32_t width = 1);
  // Passes all values to `take`, in pieces. Call it once. If only whole rows were appended, every piece consists of
  // whole rows.
  absl::Status Drain(uint64_t row_bytes, const std::function<absl::Status(std::span<const std::byte>)>& take);
  uint64_t size() const { return buffer_.size() + (file_ ? file_->size() : 0); }

 private:
  absl::Status Flush();
  std::filesystem::path directory_;
  std::stop_token stop_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<NamelessFile> file_;  // null while the buffer holds all values
};

}  // namespace permafrost::data
