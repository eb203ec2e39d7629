// Vectors whose elements begin at a cache line, which is also the widest vector register: what a kernel reads as a
// tensor, and large tables. Numbers that a resize adds without a value are anything: whoever resizes writes them, and
// megabytes are not written twice. Those of 4 MiB and more are mappings of their own, of huge pages where there are;
// their memory goes back to the system when they go.
#pragma once

#include <cstddef>
#include <new>
#include <utility>
#include <vector>

namespace permafrost {

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

}  // namespace permafrost
