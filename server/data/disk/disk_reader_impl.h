// The kinds of DiskReader share the opened file, and a place for each read that may be in flight.
// Threads: a DiskFile is safe anywhere once it is open; a PartialRead belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
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

// The part that readers of every kind share: a place, with its buffer, for each read that may be in flight. Threads:
// those of DiskReader; a slot in flight belongs to whoever reads it.

class SlotReader : public DiskReader {
 public:
  bool direct() const final { return file_->direct; }
  const std::string& fallback() const final { return fallback_; }
  int depth() const final { return options_.depth; }
  int in_flight() const final { return options_.depth - static_cast<int>(free_.size()); }
  uint64_t file_bytes() const final { return file_->bytes; }
  absl::Status Start(const DiskRead& read) final;

 protected:
  SlotReader(std::shared_ptr<const DiskFile> file, Options options, std::string fallback, DiskPages buffer);

  const DiskFile& file() const { return *file_; }
  const Options& options() const { return options_; }
  std::byte* pages() const { return buffer_.get(); }
  size_t pages_bytes() const { return static_cast<size_t>(options_.depth) * options_.max_read_bytes; }
  // The pages are never given back to the system.
  void LosePages() { [[maybe_unused]] const std::byte* const lost = buffer_.release(); }

  // The part that is to be read next, and where to.
  const PartialRead& part(int slot) const { return slots_[static_cast<size_t>(slot)].read; }
  std::byte* Target(int slot) const {
    return pages() + static_cast<size_t>(slot) * options_.max_read_bytes + part(slot).have();
  }
  // Takes what the system answered to it. True: the slot is done; false: part() tells what is left.
  bool Answered(int slot, int64_t result);
  // To the caller; the slot is free again.
  void HandOver(int slot, Done done);

 private:
  struct Slot {
    PartialRead read;
    absl::Status status;
  };

  // A new read is in the slot.
  virtual absl::Status StartSlot(int slot) = 0;

  const std::shared_ptr<const DiskFile> file_;
  const Options options_;
  const std::string fallback_;
  DiskPages buffer_;
  std::vector<Slot> slots_;
  std::vector<int> free_;
};

// Reads by one io_uring (Linux): all that were started go to the kernel in one system call, with the wait for the first
// that is done. The file is registered, and so are the buffers where the limit of locked memory allows it.
// Threads: DiskReader's.
// FailedPrecondition, "io_uring cannot be used (REASON)": a kernel without it, a container that forbids it, a build
// without it. That a trial read came has shown that it works.
absl::StatusOr<std::unique_ptr<DiskReader>> OpenUringReader(std::shared_ptr<const DiskFile> file,
                                                            const DiskReader::Options& options, std::string fallback);

}  // namespace permafrost
