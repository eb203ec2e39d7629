// Memory of tensors on one device, of all jobs of the process.
#pragma once

#include <cstdint>

namespace permafrost {

struct StorageUse {
  int64_t bytes = 0;        // live; on the CPU that is the heap, arenas included
  int64_t peak_bytes = 0;   // the most at once since the peak was restarted, or since the process began
  int64_t allocations = 0;  // since the process began; 0 where the device does not count them
};

}  // namespace permafrost
