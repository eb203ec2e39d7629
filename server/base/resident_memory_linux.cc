#ifdef __linux__

#include <unistd.h>

#include <cstdlib>  // defines __GLIBC__ where it is so
#ifdef __GLIBC__
#include <malloc.h>
#endif

#include <fstream>

#include "base/resident_memory.h"

namespace permafrost {
namespace {

struct Statm {
  uint64_t resident = 0, in_files = 0;  // bytes
};

// proc(5): statm counts pages: the second field is what is resident, the third what of it lies in files.
Statm ReadStatm() {
  std::ifstream in("/proc/self/statm");
  uint64_t size = 0, resident = 0, in_files = 0;
  if (!(in >> size >> resident >> in_files)) return {};
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return {.resident = resident * page, .in_files = in_files * page};
}

}  // namespace

uint64_t ResidentBytes() { return ReadStatm().resident; }

uint64_t ResidentFileBytes() { return ReadStatm().in_files; }

void ReturnFreeHeap() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace permafrost

#endif
