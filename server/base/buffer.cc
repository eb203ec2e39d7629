#include "base/buffer.h"

#include <sys/mman.h>

namespace permafrost {
namespace {

// A buffer of this size or more is a memory mapping of its own.
constexpr std::size_t kMappedBytes = std::size_t{4} << 20;

}  // namespace

void* AllocateBuffer(std::size_t bytes) {
  if (bytes < kMappedBytes) return ::operator new(bytes, std::align_val_t(kBufferAlignment));
  void* const buffer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (buffer == MAP_FAILED) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
  madvise(buffer, bytes, MADV_HUGEPAGE);
#endif
  return buffer;
}

void FreeBuffer(void* buffer, std::size_t bytes) {
  if (bytes < kMappedBytes) {
    ::operator delete(buffer, std::align_val_t(kBufferAlignment));
  } else {
    munmap(buffer, bytes);
  }
}

}  // namespace permafrost
