#include "daemon/heap_arenas.h"

#include <cstdlib>  // defines __GLIBC__ where it is so
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace permafrost {

void KeepFewHeaps() {
#ifdef __GLIBC__
  constexpr int kHeaps = 2;
  if (std::getenv("MALLOC_ARENA_MAX") == nullptr) mallopt(M_ARENA_MAX, kHeaps);
#endif
}

}  // namespace permafrost
