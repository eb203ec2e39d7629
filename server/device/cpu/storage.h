// Storage of CPU tensors: counted always, and, while a captured step is replayed, taken from a plan instead of the
// heap. A step on equal shapes allocates equal sizes in equal order, so that one replay is enough to learn every
// allocation's size and lifetime; later ones are served from fixed offsets of one block that all executables of a job
// share. Threads: counters are safe anywhere; a StoragePlan and an Arena belong to the device thread. Allocations of
// other threads during a replay come from the heap as ever.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace permafrost::device {

// Puts the counting allocator in place of libtorch's for CPU tensors; further calls do nothing. Storage from before is
// not counted. Call before the first tensor.
void InstallStorageAllocator();

struct StorageCounters {
  int64_t bytes = 0;        // of live storage on the heap, arenas included
  int64_t allocations = 0;  // since the process began
};
StorageCounters ReadStorageCounters();

// One block of memory, 64-byte aligned. Grows to the largest plan; nothing may live in it then.
class Arena {
 public:
  void Reserve(size_t bytes);
  size_t bytes() const { return bytes_; }
  char* data() const { return static_cast<char*>(block_.get()); }

 private:
  c10::DataPtr block_;
  size_t bytes_ = 0;
};

class StoragePlan {
 public:
  // Runs `body` on the heap and learns its allocations. What is alive when it returns is taken to live on until the
  // next step.
  static StoragePlan Learn(const std::function<void()>& body);

  // Runs `body` with its allocations served from the arena, which must have size() bytes. From the first one on that is
  // not what the plan expects, the rest comes from the heap: places follow each other as learned, or two that live at
  // once could meet. Returns how many came from there: 0 for the body that was learned.
  int64_t Serve(const Arena& arena, const std::function<void()>& body) const;

  // Within a body: which part of it begins here. An allocation is the plan's only if it is of the same part, so that
  // one more of an equal size in another place is noticed, too.
  static void BeginPart(uint32_t part);

  // Bytes of arena it needs.
  size_t size() const { return size_; }
  // Memory of the plan itself.
  size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    size_t size = 0, offset = 0;
    uint32_t part = 0;
  };
  friend class PlanSession;
  std::vector<Slot> slots_;  // in the order of allocation
  size_t size_ = 0;
};

}  // namespace permafrost::device
