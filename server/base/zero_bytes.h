// Whether memory is zero throughout.
#pragma once

#include <cstring>
#include <span>

namespace permafrost {

// At the speed of memory. Of floats: -0 is not zero. Of no bytes: true.
inline bool AreZero(std::span<const char> bytes) {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace permafrost
