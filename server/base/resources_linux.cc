#ifdef __linux__

#include <unistd.h>

#include <cstdlib>  // defines __GLIBC__ where it is so
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <fstream>

#include "base/resources.h"

namespace permafrost {

// proc(5): statm counts pages; the second field is what is resident.
uint64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  if (!(in >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

void ReturnFreeHeap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace permafrost

#endif
