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
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "base/hash.h"

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

// The checksums of one section's blocks, taken while the section is written.
// Threads: one at a time.
class BlockHashes {
 public:
  // The bytes of a block from here on; called at a section's begin.
  void set_block_bytes(uint64_t bytes) { block_bytes_ = bytes; }
  // The section's next bytes.
  void Update(std::span<const std::byte> bytes);
  // XXH3-64 of each block since the last call, the last block being shorter; begins anew.
  std::vector<uint64_t> Take();

 private:
  uint64_t block_bytes_ = BlockGuard::kBlockBytes;
  StreamHash partial_;
  uint64_t partial_bytes_ = 0;
  std::vector<uint64_t> hashes_;
};

// The values of one section as they lie in the mapping, to be touched before they are read.
// Threads: all methods are safe anywhere. A view: valid while the store that gave it out is open.
template <class T>
class Column {
 public:
  Column() = default;  // absent
  // `guard`: of exactly these values; nullptr where nothing needs verification (memory, tests).
  explicit Column(std::span<const T> values, const BlockGuard* guard = nullptr) : values_(values), guard_(guard) {}

  uint64_t size() const { return values_.size(); }
  bool empty() const { return values_.empty(); }
  // Read only what a Touch allowed.
  const T* data() const { return values_.data(); }
  const T& operator[](uint64_t i) const { return values_[i]; }

  // Verifies values [begin, end), end <= size(), as far as nobody did before. False: some are damaged, and must not be
  // taken for true.
  bool Touch(uint64_t begin, uint64_t end) const {
    return guard_ == nullptr || guard_->Touch(begin * sizeof(T), end * sizeof(T));
  }
  // The mapped bytes that a Touch and a reading of [begin, end) will need.
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

// Checks of a section's values, which a checksum cannot make: each checks one block, as BlockGuard runs them.
// Threads: safe anywhere. The checks borrow the values.

// Offsets that begin at 0, rise, also against the one before the block, and end at `total`.
BlockGuard::ContentCheck OffsetsCheck(std::span<const uint64_t> offsets, uint64_t total);
// Values below `bound`; `what` names one in messages.
BlockGuard::ContentCheck BelowCheck(std::span<const uint32_t> values, uint64_t bound, std::string what);
BlockGuard::ContentCheck BelowCheck(std::span<const uint64_t> values, uint64_t bound, std::string what);

}  // namespace permafrost::data
