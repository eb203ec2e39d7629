#include "data/store/block_guard.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "data/store/format.h"

namespace permafrost::data {

BlockGuard::BlockGuard(std::string name, std::span<const std::byte> bytes, std::span<const uint64_t> checksums,
                       uint64_t block_bytes, ContentCheck check)
    : name_(std::move(name)),
      bytes_(bytes),
      checksums_(checksums),
      shift_(std::countr_zero(block_bytes)),
      check_(std::move(check)),
      states_(std::make_unique<std::atomic<uint8_t>[]>(checksums.size())) {}

BlockGuard::Range BlockGuard::BytesOf(uint64_t block) const {
  const uint64_t begin = block << shift_;
  return {begin, std::min<uint64_t>(bytes_.size(), begin + (uint64_t{1} << shift_))};
}

BlockGuard::Range BlockGuard::Reads(uint64_t begin, uint64_t end) const {
  if (begin >= end) return {begin, begin};
  Range range{begin, end};
  const uint64_t first = begin >> shift_, last = (end - 1) >> shift_;
  if (states_[first].load(std::memory_order_relaxed) == kUntouched) range.begin = BytesOf(first).begin;
  if (states_[last].load(std::memory_order_relaxed) == kUntouched) range.end = BytesOf(last).end;
  return range;
}

absl::Status BlockGuard::status() const {
  absl::MutexLock lock(&mu_);
  return status_;
}

bool BlockGuard::Verify(uint64_t block) const {
  std::atomic<uint8_t>& state = states_[block];
  if (state.load(std::memory_order_acquire) == kDamaged) return false;
  const Range range = BytesOf(block);
  const std::span<const std::byte> bytes = bytes_.subspan(range.begin, range.end - range.begin);
  // The kernel reads a page as a whole anyway.
  if (bytes.size() > kPageBytes) AdviseWillNeed(bytes);
  const uint64_t is = Hash64(bytes.data(), bytes.size()), expected = checksums_[block];
  absl::Status found;
  if (is != expected) {
    found = absl::DataLossError(absl::StrCat("checksum: is ", HashHex(is), ", expected ", HashHex(expected)));
  } else if (check_) {
    found = Annotate(check_(range.begin, range.end), "content");
  }
  if (found.ok()) {
    // Two threads may verify the same block of a file that is being changed. If one of them finds damage, the block
    // stays damaged.
    uint8_t untouched = kUntouched;
    return state.compare_exchange_strong(untouched, kVerified, std::memory_order_acq_rel) || untouched == kVerified;
  }
  {
    absl::MutexLock lock(&mu_);
    if (status_.ok()) {
      status_ = Annotate(found, absl::StrCat(name_, ": bytes ", range.begin, "..", range.end - 1));
    }
  }
  state.store(kDamaged, std::memory_order_release);
  return false;
}

void BlockHashes::Update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (partial_bytes_ == 0 && bytes.size() >= block_bytes_) {
      hashes_.push_back(Hash64(bytes.data(), block_bytes_));
      bytes = bytes.subspan(block_bytes_);
      continue;
    }
    const size_t count = std::min<size_t>(bytes.size(), block_bytes_ - partial_bytes_);
    partial_.Update(bytes.data(), count);
    partial_bytes_ += count;
    bytes = bytes.subspan(count);
    if (partial_bytes_ < block_bytes_) continue;
    hashes_.push_back(partial_.Digest());
    partial_.Reset();
    partial_bytes_ = 0;
  }
}

std::vector<uint64_t> BlockHashes::Take() {
  if (partial_bytes_ > 0) {
    hashes_.push_back(partial_.Digest());
    partial_.Reset();
    partial_bytes_ = 0;
  }
  return std::exchange(hashes_, {});
}

namespace {

template <class T>
BlockGuard::ContentCheck Below(std::span<const T> values, uint64_t bound, std::string what) {
  return [values, bound, what = std::move(what)](uint64_t begin, uint64_t end) {
    const auto block = values.subspan(begin / sizeof(T), (end - begin) / sizeof(T));
    // The search for a maximum vectorises, so it is faster than comparing each value with the bound.
    T largest = 0;
    for (const T value : block) largest = std::max(largest, value);
    if (block.empty() || largest < bound) return absl::OkStatus();
    const auto bad = std::ranges::find_if(block, [bound](T value) { return value >= bound; });
    return Mismatch(absl::StrCat(what, " ", begin / sizeof(T) + static_cast<uint64_t>(bad - block.begin())), *bad,
                    absl::StrCat("below ", bound));
  };
}

}  // namespace

BlockGuard::ContentCheck OffsetsCheck(std::span<const uint64_t> offsets, uint64_t total) {
  return [offsets, total](uint64_t begin_byte, uint64_t end_byte) {
    const uint64_t begin = begin_byte / sizeof(uint64_t), end = end_byte / sizeof(uint64_t);
    if (begin == 0 && offsets.front() != 0) return Mismatch("first offset", offsets.front(), 0);
    if (end == offsets.size() && offsets.back() != total) return Mismatch("last offset", offsets.back(), total);
    for (uint64_t i = std::max<uint64_t>(begin, 1); i < end; ++i) {
      if (offsets[i] < offsets[i - 1]) {
        return Mismatch(absl::StrCat("offset ", i), offsets[i], absl::StrCat("at least ", offsets[i - 1]));
      }
    }
    if (offsets[end - 1] > total) {
      return Mismatch(absl::StrCat("offset ", end - 1), offsets[end - 1], absl::StrCat("at most ", total));
    }
    return absl::OkStatus();
  };
}

BlockGuard::ContentCheck BelowCheck(std::span<const uint32_t> values, uint64_t bound, std::string what) {
  return Below(values, bound, std::move(what));
}
BlockGuard::ContentCheck BelowCheck(std::span<const uint64_t> values, uint64_t bound, std::string what) {
  return Below(values, bound, std::move(what));
}

}  // namespace permafrost::data
