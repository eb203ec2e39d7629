// The checksums of one section's blocks, taken while the section is written.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"
#include "data/store/block_guard.h"

namespace permafrost::data {

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

}  // namespace permafrost::data
