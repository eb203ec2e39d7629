// The part that readers of every kind share: the opened file, and what an answer of the system means to a read.
// Threads: DiskFile is safe anywhere once it is open; a PartialRead belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/descriptor.h"
#include "data/disk/disk_reader.h"

namespace permafrost {

struct DiskFile {
  std::filesystem::path path;
  Descriptor descriptor;
  uint64_t bytes = 0;
  bool direct = false;
  std::string fallback;  // why not direct, where that was wanted

  // A trial read tells whether direct ones work.
  static absl::StatusOr<std::shared_ptr<const DiskFile>> Open(const std::filesystem::path& path, bool direct);
  // Start's InvalidArgument.
  absl::Status Check(const DiskRead& read, uint32_t max_read_bytes) const;
  // Pages that were read through the cache leave it.
  void DropFromCache(const DiskRead& read) const;
};

// Whole pages of memory that begin at a page; nullptr: there are none left.
struct FreePages {
  void operator()(std::byte* pages) const;
};
using DiskPages = std::unique_ptr<std::byte, FreePages>;
DiskPages AllocateDiskPages(size_t bytes);

// A read on its way. The system may answer it in parts; each begins at a whole page.
class PartialRead {
 public:
  PartialRead() = default;
  PartialRead(const DiskRead& read, uint64_t file_bytes);

  const DiskRead& read() const { return read_; }
  // The bytes that are handed over when all of them are there.
  uint32_t wanted() const { return wanted_; }
  // The part to ask for next: bytes() at offset(), into the buffer at have().
  uint64_t offset() const { return read_.offset + have_; }
  uint32_t have() const { return have_; }
  uint32_t bytes() const { return read_.bytes - have_; }

  enum class Next { kDone, kAgain };
  // result: bytes, or less than zero: -errno. EINTR, EAGAIN and short answers are kAgain.
  absl::StatusOr<Next> Take(const DiskFile& file, int64_t result);

 private:
  absl::StatusOr<Next> WithoutProgress(const DiskFile& file, int error);

  DiskRead read_;
  uint32_t wanted_ = 0;
  uint32_t have_ = 0;
  int idle_ = 0;  // answers in a row that brought nothing
};

}  // namespace permafrost
