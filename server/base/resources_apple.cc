#ifdef __APPLE__

#include <mach/mach.h>
#include <malloc/malloc.h>

#include <algorithm>

#include "base/resources.h"

namespace permafrost {

std::optional<MemoryLeft> GetMemoryLeft() {
  vm_statistics64_data_t pages{};
  mach_msg_type_number_t count = HOST_VM_INFO64_COUNT;
  vm_size_t page_bytes = 0;
  const mach_port_t host = mach_host_self();
  const bool told =
      host_page_size(host, &page_bytes) == KERN_SUCCESS &&
      host_statistics64(host, HOST_VM_INFO64, reinterpret_cast<host_info64_t>(&pages), &count) == KERN_SUCCESS;
  mach_port_deallocate(mach_task_self(), host);
  if (!told) return std::nullopt;
  // Speculative pages are counted as free ones too.
  const uint64_t free_pages = uint64_t{pages.free_count} + pages.external_page_count + pages.purgeable_count;
  const uint64_t limit = MemoryLimit(), left = std::min(limit, free_pages * page_bytes);
  return MemoryLeft{.limit = limit, .used = limit - left, .left = left};
}

MemoryPressure GetMemoryPressure() { return {}; }

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
