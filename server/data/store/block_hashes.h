// The checksums of one section's blocks, taken while the section is written.
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/hash.h"

namespace permafrost::data {

class BlockHashes {
 public:
  // The section's next bytes.
  void Update(std::span<const std::byte> bytes);
  // XXH3-64 of each BlockGuard::kBlockBytes since the last call, the last block being shorter; begins anew.
  std::vector<uint64_t> Take();

 private:
  StreamHash partial_;
  uint64_t partial_bytes_ = 0;
  std::vector<uint64_t> hashes_;
};

}  // namespace permafrost::data
