// The part that readers of every kind share: a place for each read that may be in flight, with its buffer.
// Threads: DiskReader's, but for a slot that is on its way: that is of whoever reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/disk/disk_file.h"
#include "data/disk/disk_reader.h"

namespace permafrost {

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

}  // namespace permafrost
