// Checksums of one section's blocks, each verified when it is first touched.
// Threads: all methods are safe anywhere. Borrows the mapped bytes and the checksums.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

namespace permafrost::data {

class BlockGuard {
 public:
  // 64 KiB: checksums take 0.01 % of the bytes, and it is about what a disk reads in one seek. For sections whose rows
  // are read from all over, a block is a page (kPageBytes, 0.2 %).
  static constexpr uint64_t kBlockBytes = uint64_t{1} << 16;

  // Checks what a checksum cannot say about bytes [begin, end) of the section, once their checksum held: ids in range,
  // offsets that rise. Empty: nothing to check.
  using ContentCheck = std::function<absl::Status(uint64_t begin, uint64_t end)>;

  // `name`: file and section, as messages say them. `checksums`: XXH3-64 of each `block_bytes`, a power of two, of
  // `bytes`, the last block being shorter; kWhole: there is one checksum for all the bytes, whatever their length.
  static constexpr uint64_t kWhole = uint64_t{1} << 63;
  BlockGuard(std::string name, std::span<const std::byte> bytes, std::span<const uint64_t> checksums,
             uint64_t block_bytes, ContentCheck check);

  // Verifies those blocks of bytes [begin, end) that nobody touched before; asks the kernel for all of a block at once
  // first. False, from then on for every range that meets it: a block is damaged, and status() tells.
  bool Touch(uint64_t begin, uint64_t end) const {
    if (begin >= end) return true;
    for (uint64_t b = begin >> shift_, last = (end - 1) >> shift_; b <= last; ++b) {
      if (states_[b].load(std::memory_order_acquire) != kVerified && !Verify(b)) return false;
    }
    return true;
  }
  // The bytes that a Touch of [begin, end) reads: whole blocks where they are not verified yet.
  struct Range {
    uint64_t begin = 0, end = 0;
  };
  Range Reads(uint64_t begin, uint64_t end) const;
  // Ok, or DataLoss that names file, section and bytes of the damage found first.
  absl::Status status() const;

 private:
  enum State : uint8_t { kUntouched, kVerified, kDamaged };
  bool Verify(uint64_t block) const;
  Range BytesOf(uint64_t block) const;

  const std::string name_;
  const std::span<const std::byte> bytes_;
  const std::span<const uint64_t> checksums_;
  const int shift_;  // a byte's block is its number shifted by so much
  const ContentCheck check_;
  const std::unique_ptr<std::atomic<uint8_t>[]> states_;
  mutable absl::Mutex mu_;
  mutable absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace permafrost::data
