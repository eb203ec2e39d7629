#include "base/hash.h"

#include <xxhash.h>

#include <new>

namespace permafrost {

struct StreamHash::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_64bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
};

std::uint64_t Hash64(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

Hash128Value Hash128(const void* data, std::size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

std::string HashHex(std::uint64_t hash) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out(16, '0');
  for (std::size_t i = 16; i-- > 0; hash >>= 4) out[i] = kDigits[hash & 15];
  return out;
}

StreamHash::StreamHash() : state_(std::make_unique<State>()) {}
StreamHash::~StreamHash() = default;
StreamHash::StreamHash(StreamHash&&) noexcept = default;
StreamHash& StreamHash::operator=(StreamHash&&) noexcept = default;

void StreamHash::Update(const void* data, std::size_t bytes) { XXH3_64bits_update(state_->xxh, data, bytes); }
std::uint64_t StreamHash::Digest() const { return XXH3_64bits_digest(state_->xxh); }
void StreamHash::Reset() { XXH3_64bits_reset(state_->xxh); }

}  // namespace permafrost
