// Counts the storage of CPU tensors, and plans the storage of captured steps. On equal shapes, a step allocates equal
// sizes in equal order. So one replay is enough to learn the size and lifetime of every allocation. Later replays get
// storage at fixed offsets of one block, the arena, instead of the heap. All executables of a job share one arena.
// Threads: the counters are safe anywhere. A StoragePlan and an Arena belong to the device thread. During a replay,
// allocations of other threads come from the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/device.h"

namespace permafrost::device {

// Replaces libtorch's allocator for CPU tensors by a counting allocator. Further calls do nothing. Call it before the
// first tensor is made, since older storage is not counted.
void InstallStorageAllocator();

StorageUse ReadStorageUse();
// Sets the peak to the bytes in use now.
void RestartStoragePeak();

// One block of memory, aligned to 64 bytes, for the plans of a job. It is as large as the largest plan. The memory is
// allocated at first use and kept until Release.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { Release(); }

  // Makes the arena at least `bytes` large. If it grows, all storage in it becomes invalid.
  void Reserve(size_t bytes);
  // Frees the memory until the next use. All storage in the arena becomes invalid.
  void Release();
  size_t bytes() const { return bytes_; }
  // Returns the block, and allocates it if needed. Throws c10::OutOfMemoryError.
  char* data();
  // Notes that `block` is freed now. `block` is storage that outlived the ServeAnySize call which served it.
  void NoteFree(const void* block);

 private:
  friend class PlanSession;
  char* block_ = nullptr;
  size_t bytes_ = 0;
  // Storage that outlived the ServeAnySize call which served it.
  std::vector<const void*> escaped_;
};

class StoragePlan {
 public:
  // Runs `body` on the heap and learns its allocations. Storage that is alive when `body` returns is assumed to live
  // until the next step.
  static StoragePlan Learn(const std::function<void()>& body);

  // Runs `body` and serves its allocations from the arena, which must have at least size() bytes. Each allocation
  // gets its planned place as long as size and order match the learned allocations. From the first mismatch on, all
  // allocations come from the heap, since later places may hold storage that is still alive. Returns how many
  // allocations came from the heap. It is 0 for the body that was learned.
  int64_t Serve(Arena& arena, const std::function<void()>& body) const;

  // Same as Serve, but the allocations of `body` may differ in size and order from the learned ones. So a plan that
  // was learned at a step's largest shape also serves smaller shapes. The n-th allocation in a part (BeginPart) gets
  // the place of the n-th learned allocation of this part, if the place is large enough and free. Otherwise it gets
  // the lowest gap that is large enough, or memory of the heap if there is no such gap. Returns how many allocations
  // came from the heap.
  int64_t ServeAnySize(Arena& arena, const std::function<void()>& body) const;

  // Call it within a body where part number `part` of the body begins. A planned place is used only for an allocation
  // of the part in which it was learned. So an extra allocation of an equal size in another part does not go
  // unnoticed.
  static void BeginPart(uint32_t part);

  // Returns the bytes that the plan needs in the arena.
  size_t size() const { return size_; }
  // Returns the bytes of the plan itself.
  size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  struct Slot {
    size_t size = 0, offset = 0;
    uint32_t part = 0;
  };
  friend class PlanSession;
  int64_t ServeFrom(Arena& arena, bool any_size, const std::function<void()>& body) const;
  std::vector<Slot> slots_;  // in the order of allocation
  size_t size_ = 0;
};

}  // namespace permafrost::device
