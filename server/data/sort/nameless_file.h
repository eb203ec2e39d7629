// Temporary bytes of an import: what must wait until its section's turn, or does not fit into memory.
// Threads: one at a time. Owns the file, which has no name: it is gone whenever the process is.
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
  // ResourceExhausted, transient, where the disk is full. Cancelled, between pieces, once `stop` is requested.
  absl::Status Append(std::span<const std::byte> bytes, const std::stop_token& stop) {
    return Write(size_, bytes, stop);
  }
  // The same at `offset`; what lies between the bytes that were written reads as zeros.
  absl::Status Write(uint64_t offset, std::span<const std::byte> bytes, const std::stop_token& stop);
  // Fills `out` from `offset`, which with its size lies within size().
  absl::Status Read(uint64_t offset, std::span<std::byte> out) const;
  uint64_t size() const { return size_; }

 private:
  NamelessFile(std::filesystem::path directory, Descriptor file)
      : directory_(std::move(directory)), file_(std::make_unique<Descriptor>(std::move(file))) {}
  std::filesystem::path directory_;  // named by errors
  std::unique_ptr<Descriptor> file_;
  uint64_t size_ = 0;
};

// A section's values, kept until the writer is free for them. Memory: a buffer.
class WaitingColumn {
 public:
  WaitingColumn(std::filesystem::path directory, std::stop_token stop)
      : directory_(std::move(directory)), stop_(std::move(stop)) {}

  template <class T>
  absl::Status Append(std::span<const T> values) {
    return AppendBytes(std::as_bytes(values));
  }
  absl::Status AppendBytes(std::span<const std::byte> bytes);
  // Writes all of it as a section.
  absl::Status MoveTo(GraphWriter& writer, SectionKind kind, ElementType type, uint32_t width = 1);
  // Gives everything to `take`, once. If only whole rows were appended, it comes in pieces of whole rows.
  absl::Status Drain(uint64_t row_bytes, const std::function<absl::Status(std::span<const std::byte>)>& take);
  uint64_t size() const { return buffer_.size() + (file_ ? file_->size() : 0); }

 private:
  absl::Status Flush();
  std::filesystem::path directory_;
  std::stop_token stop_;
  std::vector<std::byte> buffer_;
  std::unique_ptr<NamelessFile> file_;  // once the buffer did not hold it
};

}  // namespace permafrost::data
