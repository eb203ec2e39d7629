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

// Vectors that begin at a multiple of 64 bytes, the size of a cache line and of the widest vector register. They hold
// large tables, and data that a kernel reads as a tensor. A resize without a value leaves the new elements
// uninitialised, so that large arrays are not written twice. The caller of resize must write the new elements. A
// buffer of 4 MiB or more is a memory mapping of its own, with huge pages if the system has them. Freeing the buffer
// returns the mapping's memory to the system.
inline constexpr std::size_t kBufferAlignment = 64;

// Returns memory that begins at a multiple of kBufferAlignment. Throws std::bad_alloc.
void* AllocateBuffer(std::size_t bytes);
// Frees a buffer that AllocateBuffer returned. `bytes` must be the size that was passed to AllocateBuffer.
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

// The next two functions prefetch memory that will be read soon. Threads: safe anywhere.

// Prefetches the cache line that holds `address`. An invalid address does no harm.
inline void PrefetchLine(const void* address) {
  __builtin_prefetch(address);
  // To GCC 12, a function that only prefetches has no side effects, so it drops calls of the function. The empty asm
  // counts as a side effect.
  asm volatile("");
}

// Prefetches the `bytes` bytes from `begin` on, one cache line per 64 bytes.
inline void PrefetchLines(const void* begin, uint64_t bytes) {
  const char* const first = static_cast<const char*>(begin);
  for (uint64_t at = 0; at < bytes; at += 64) PrefetchLine(first + at);
}

// Returns whether all bytes are zero; true for an empty span. Runs at memory bandwidth. The float -0.0 has a byte
// that is not zero.
inline bool AreZero(std::span<const char> bytes) {
  return bytes.empty() || (bytes[0] == 0 && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

}  // namespace permafrost
