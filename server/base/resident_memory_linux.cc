#ifdef __linux__

#include <unistd.h>

#include <fstream>

#include "base/resident_memory.h"

namespace permafrost {

// proc(5): statm counts pages; the second field is what is resident.
uint64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  uint64_t size = 0, resident = 0;
  if (!(in >> size >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace permafrost

#endif
