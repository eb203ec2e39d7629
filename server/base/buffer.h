// Large arrays in memory: aligned allocation, prefetching, and a test for zeros.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <utility>
#include <vector>

namespace permafrost {

// Vectors whose elements begin at a cache line (64 bytes), which is also the width of the widest vector register.
// They hold large tables, and data that a kernel reads as a tensor. Elements that a resize adds without a value are
// uninitialised, so that large arrays are not written twice. The caller of resize must write those elements. Each
// buffer of 4 MiB or more is its own mapping, with huge pages if the system has them. The memory of such a mapping
// returns to the system when the buffer is freed.
inline constexpr std::size_t kBufferAlignment = 64;

// Returns memory that begins at a multiple of kBufferAlignment. Throws std::bad_alloc.
void* AllocateBuffer(std::size_t bytes);
// `bytes` must be the size that the buffer was allocated with.
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

// Prefetching of memory that will be read soon. Threads: safe anywhere.

// Prefetches the cache line that holds `address`. The address may be invalid: nothing is read.
inline void PrefetchLine(const void* address) {
  __builtin_prefetch(address);
  // GCC 12 treats a function that only prefetches as free of effects and drops its calls. The empty asm counts as an
  // effect.
  asm volatile("");
}

// Prefetches the `bytes` bytes from `begin` on, one cache line per 64 bytes.
inline void PrefetchLines(const void* begin, uint64_t bytes) {
  const char* const first = static_cast<const char*>(begin);
  for (uint64_t at = 0; at < bytes; at += 64) PrefetchLine(first + at);
}

// Returns whether all bytes are zero, at memory bandwidth. A float -0 has a non-zero byte. An empty span counts as
// zero.
inline bool AreZero(std::span<const char> bytes) {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace permafrost
