#include "data/store/block_hashes.h"

#include <algorithm>
#include <utility>

namespace permafrost::data {

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

}  // namespace permafrost::data
