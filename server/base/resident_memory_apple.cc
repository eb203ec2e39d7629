#ifdef __APPLE__

#include <mach/mach.h>
#include <malloc/malloc.h>

#include "base/resident_memory.h"

namespace permafrost {

uint64_t ResidentBytes() {
  mach_task_basic_info task{};
  mach_msg_type_number_t count = MACH_TASK_BASIC_INFO_COUNT;
  const kern_return_t read =
      task_info(mach_task_self(), MACH_TASK_BASIC_INFO, reinterpret_cast<task_info_t>(&task), &count);
  return read == KERN_SUCCESS ? task.resident_size : 0;
}

void ReturnFreeHeap() { malloc_zone_pressure_relief(nullptr, 0); }

}  // namespace permafrost

#endif
