// Memory of this process that is in RAM.
// Threads: safe anywhere.
#pragma once

#include <cstdint>

namespace permafrost {

// In bytes; 0: the operating system does not tell.
uint64_t ResidentBytes();
// Gives the allocator's free memory back to the system, where it can.
void ReturnFreeHeap();

}  // namespace permafrost
