// XXH3 hashes. The 64-bit hash is the checksum of every file that Permafrost writes. The 128-bit hash identifies a
// value that is not stored itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace permafrost {

std::uint64_t Hash64(const void* data, std::size_t bytes);
inline std::uint64_t Hash64(std::string_view data) { return Hash64(data.data(), data.size()); }
struct Hash128Value {
  std::uint64_t low = 0, high = 0;
  bool operator==(const Hash128Value&) const = default;
};
Hash128Value Hash128(const void* data, std::size_t bytes);
// Returns 16 lower-case hex digits.
std::string HashHex(std::uint64_t hash);

// Computes Hash64 of data that comes in pieces.
class StreamHash {
 public:
  StreamHash();
  ~StreamHash();
  StreamHash(StreamHash&&) noexcept;
  StreamHash& operator=(StreamHash&&) noexcept;
  void Update(const void* data, std::size_t bytes);
  std::uint64_t Digest() const;
  // Resets the object to the state of a new one.
  void Reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace permafrost
