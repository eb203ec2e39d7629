#include "data/store/block_hashes.h"

#include <algorithm>
#include <utility>

#include "data/store/block_guard.h"

namespace permafrost::data {

void BlockHashes::Update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (partial_bytes_ == 0 && bytes.size() >= BlockGuard::kBlockBytes) {
      hashes_.push_back(Hash64(bytes.data(), BlockGuard::kBlockBytes));
      bytes = bytes.subspan(BlockGuard::kBlockBytes);
      continue;
    }
    const size_t count = std::min<size_t>(bytes.size(), BlockGuard::kBlockBytes - partial_bytes_);
    partial_.Update(bytes.data(), count);
    partial_bytes_ += count;
    bytes = bytes.subspan(count);
    if (partial_bytes_ < BlockGuard::kBlockBytes) continue;
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
