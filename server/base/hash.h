// XXH3-64, the checksum of every file that Permafrost writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace permafrost {

std::uint64_t Hash64(const void* data, std::size_t bytes);
inline std::uint64_t Hash64(std::string_view data) { return Hash64(data.data(), data.size()); }
// 16 lower-case hex digits.
std::string HashHex(std::uint64_t hash);

// The same hash over pieces.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;
  void Update(const void* data, std::size_t bytes);
  std::uint64_t Digest() const;
  // As new.
  void Reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace permafrost
