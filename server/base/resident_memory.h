// Memory of this process that is in RAM.
// Threads: safe anywhere.
#pragma once

#include <cstdint>

namespace permafrost {

// In bytes; 0: the operating system does not tell.
uint64_t ResidentBytes();
// Those of them that lie in files, as programs and libraries do: the kernel may take them back and has to read them
// again. 0 where it does not tell.
uint64_t ResidentFileBytes();
// Gives the allocator's free memory back to the system, where it can.
void ReturnFreeHeap();

}  // namespace permafrost
