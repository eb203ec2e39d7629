// Checksums of a section's blocks. A block is verified when it is first touched.
// Threads: all methods are safe anywhere. Borrows the mapped bytes and the checksums.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/hash.h"

namespace permafrost::data {

class BlockGuard {
 public:
  // Most sections have blocks of 64 KiB, which is about what one access to a disk reads. Their checksums take 0.01 %
  // of the bytes. A section whose rows are read in random order has blocks of one page (kPageBytes). Their checksums
  // take 0.2 %.
  static constexpr uint64_t kBlockBytes = uint64_t{1} << 16;

  // Checks the values in bytes [begin, end) of the section: ids must be in range, and offsets must rise. The check
  // runs only after the checksum of these bytes matched. An empty function checks nothing.
  using ContentCheck = std::function<absl::Status(uint64_t begin, uint64_t end)>;

  // `name` names the file and the section in messages. `checksums` holds the XXH3-64 of each block of `bytes`. A
  // block has `block_bytes` bytes, a power of two; the last block may be shorter. If `block_bytes` is kWhole, one
  // checksum covers all of `bytes`.
  static constexpr uint64_t kWhole = uint64_t{1} << 63;
  BlockGuard(std::string name, std::span<const std::byte> bytes, std::span<const uint64_t> checksums,
             uint64_t block_bytes, ContentCheck check);

  // Verifies each block that overlaps bytes [begin, end) and has not been verified yet. Advises the kernel to load
  // the whole block before reading it. Returns false if a block is damaged; status() then says which one. From then
  // on, Touch returns false for every range that includes this block.
  bool Touch(uint64_t begin, uint64_t end) const {
    if (begin >= end) return true;
    for (uint64_t b = begin >> shift_, last = (end - 1) >> shift_; b <= last; ++b) {
      if (states_[b].load(std::memory_order_acquire) != kVerified && !Verify(b)) return false;
    }
    return true;
  }
  struct Range {
    uint64_t begin = 0, end = 0;
  };
  // Returns the range of bytes that are read from the file when bytes [begin, end) are touched and used. If the first
  // or the last block is not verified yet, the range includes all of that block.
  Range Reads(uint64_t begin, uint64_t end) const;
  // Returns Ok if no damage was found. Otherwise returns a DataLoss that names the file, the section and the bytes of
  // the first damage.
  absl::Status status() const;

 private:
  enum State : uint8_t { kUntouched, kVerified, kDamaged };
  bool Verify(uint64_t block) const;
  Range BytesOf(uint64_t block) const;

  const std::string name_;
  const std::span<const std::byte> bytes_;
  const std::span<const uint64_t> checksums_;
  const int shift_;  // log2 of the block length: byte i is in block i >> shift_
  const ContentCheck check_;
  const std::unique_ptr<std::atomic<uint8_t>[]> states_;
  mutable absl::Mutex mu_;
  mutable absl::Status status_ ABSL_GUARDED_BY(mu_);
};

// Computes the checksums of a section's blocks while the section is written.
// Threads: one at a time.
class BlockHashes {
 public:
  // Sets the length of a block. Call it before the first Update of a section.
  void set_block_bytes(uint64_t bytes) { block_bytes_ = bytes; }
  // Hashes the next bytes of the section.
  void Update(std::span<const std::byte> bytes);
  // Ends the section and returns the XXH3-64 of each of its blocks. The last block may be shorter. The next Update
  // begins a new section.
  std::vector<uint64_t> Take();

 private:
  uint64_t block_bytes_ = BlockGuard::kBlockBytes;
  StreamHash partial_;
  uint64_t partial_bytes_ = 0;
  std::vector<uint64_t> hashes_;
};

// The values of one section of a mapped file. Touch must verify values before they are read.
// Threads: all methods are safe anywhere. A Column is a view: it is valid while the store that returned it is open.
template <class T>
class Column {
 public:
  Column() = default;  // an absent section
  // `guard` must guard exactly these values. It is null if the values need no verification (values in memory, tests).
  explicit Column(std::span<const T> values, const BlockGuard* guard = nullptr) : values_(values), guard_(guard) {}

  uint64_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  // Callers may use only values for which Touch returned true.
  const T* data() const { return values_.data(); }
  const T& operator[](uint64_t i) const { return values_[i]; }

  // Verifies the values in [begin, end) that are not verified yet; end <= size(). If any value in [begin, end) is
  // damaged, returns false, and none of these values may be used.
  bool Touch(uint64_t begin, uint64_t end) const {
    return guard_ == nullptr || guard_->Touch(begin * sizeof(T), end * sizeof(T));
  }
  // Returns the mapped bytes that are read when values [begin, end) are touched and used.
  std::span<const std::byte> Reads(uint64_t begin, uint64_t end) const {
    BlockGuard::Range range{begin * sizeof(T), end * sizeof(T)};
    if (guard_ != nullptr) range = guard_->Reads(range.begin, range.end);
    return std::as_bytes(values_).subspan(range.begin, range.end - range.begin);
  }
  absl::Status status() const { return guard_ == nullptr ? absl::OkStatus() : guard_->status(); }

 private:
  std::span<const T> values_;
  const BlockGuard* guard_ = nullptr;
};

// Checks of a section's values, beyond checksums. BlockGuard runs them on one block at a time.
// Threads: safe anywhere. The checks borrow the values.

// Returns a check that offsets begin at 0, never fall, and end at `total`. It also compares the first offset of a
// block with the last offset of the block before.
BlockGuard::ContentCheck OffsetsCheck(std::span<const uint64_t> offsets, uint64_t total);
// Both functions return a check that values are below `bound`. `what` is a noun for one value, for messages.
BlockGuard::ContentCheck BelowCheck(std::span<const uint32_t> values, uint64_t bound, std::string what);
BlockGuard::ContentCheck BelowCheck(std::span<const uint64_t> values, uint64_t bound, std::string what);

}  // namespace permafrost::data
