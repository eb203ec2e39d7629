// Tells whether memory is zero throughout.
#pragma once

#include <cstring>
#include <span>

namespace permafrost {

// Runs at the speed of memory. The float -0 is not zero. No bytes at all are zero.
inline bool AreZero(std::span<const char> bytes) {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace permafrost
