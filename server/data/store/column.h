// The values of one section as they lie in the mapping, to be touched before they are read.
// Threads: all methods are safe anywhere. A view: valid while the store that gave it out is open.
#pragma once

#include <cstdint>
#include <span>

#include "data/store/block_guard.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
