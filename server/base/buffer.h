// Holds large arrays in memory: aligned, asked for before they are read, and checked for zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace permafrost {

// Vectors whose elements begin at a cache line, which is also the widest vector register: what a kernel reads as a
// tensor, and large tables. Numbers that a resize adds without a value are anything: whoever resizes writes them, and
// megabytes are not written twice. Buffers of 4 MiB and more are mappings of their own, of huge pages where there are;
// their memory goes back to the system when they go.
inline constexpr std::size_t kBufferAlignment = 64;

// Memory that begins at a multiple of kBufferAlignment. Throws std::bad_alloc.
void* AllocateBuffer(std::size_t bytes);
// `bytes` as it was allocated with.
void FreeBuffer(void* buffer, std::size_t bytes);

template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}  // NOLINT(google-explicit-constructor): containers rebind it
  T* allocate(std::size_t count) { return static_cast<T*>(AllocateBuffer(count * sizeof(T))); }
  void deallocate(T* values, std::size_t count) { FreeBuffer(values, count * sizeof(T)); }
  template <class U>
  void construct(U* at) {
    ::new (static_cast<void*>(at)) U;
  }
  template <class U, class... Values>
  void construct(U* at, Values&&... values) {
    ::new (static_cast<void*>(at)) U(std::forward<Values>(values)...);
  }
  bool operator==(const AlignedAllocator&) const = default;
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

// Asks for memory that is read soon.
// Threads: safe anywhere.

// The line of the cache that `address` is in; whatever it points to, nothing is read.
inline void PrefetchLine(const void* address) {
  __builtin_prefetch(address);
  // GCC 12 holds that a function that only prefetches has no effect, and leaves out calls of it; this is an effect.
  asm volatile("");
}

// A line for each 64 bytes of `bytes` from `begin` on.
inline void PrefetchLines(const void* begin, uint64_t bytes) {
  const char* const first = static_cast<const char*>(begin);
  for (uint64_t at = 0; at < bytes; at += 64) PrefetchLine(first + at);
}

// Tells whether memory is zero throughout.

// Runs at the speed of memory. The float -0 is not zero. No bytes at all are zero.
inline bool AreZero(std::span<const char> bytes) {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace permafrost
