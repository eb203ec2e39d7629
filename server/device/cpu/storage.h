// Storage of CPU tensors. All of this storage is counted. While a captured step is replayed, its storage comes from a
// plan instead of the heap. A step on equal shapes allocates equal sizes in equal order, so one replay is enough to
// learn the size and lifetime of every allocation. Later replays are served from fixed offsets of one block, the
// arena, which all executables of a job share.
// Threads: counters are safe anywhere. A StoragePlan and an Arena belong to the device thread. Allocations of other
// threads during a replay come from the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/device.h"

namespace permafrost::device {

// Replaces libtorch's allocator for CPU tensors by the counting allocator; further calls are no-ops. Call it before
// the first tensor is made: storage from before is not counted.
void InstallStorageAllocator();

StorageUse ReadStorageUse();
// Sets the peak to the storage that is live now.
void RestartStoragePeak();

// One block of memory, 64-byte aligned, that serves a job's plans. Its size is that of the largest plan. The memory
// is allocated at first use and kept until Release.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { Release(); }

  // Makes the arena at least `bytes` large. If it grows, nothing that was served from it is valid any more.
  void Reserve(size_t bytes);
  // Gives the memory back until the next use. Nothing that was served from it is valid any more.
  void Release();
  size_t bytes() const { return bytes_; }
  // Throws c10::OutOfMemoryError.
  char* data();
  // Notes that `block`, which ServeAnySize served and which outlived its session, is freed now.
  void NoteFree(const void* block);

 private:
  friend class PlanSession;
  char* block_ = nullptr;
  size_t bytes_ = 0;
  // The storage that ServeAnySize served and that has outlived its session.
  std::vector<const void*> escaped_;
};

class StoragePlan {
 public:
  // Runs `body` on the heap and learns its allocations. Storage that is alive when `body` returns is assumed to live
  // until the next step.
  static StoragePlan Learn(const std::function<void()>& body);

  // Runs `body` and serves its allocations from the arena, which must have size() bytes. Each allocation gets its
  // planned place while the allocations match the learned ones. From the first allocation that differs, all come from
  // the heap, since later places may hold storage that is still alive. Returns how many allocations came from the
  // heap: 0 for the body that was learned.
  int64_t Serve(Arena& arena, const std::function<void()>& body) const;

  // Same as Serve, for a body whose allocations differ in size or order from the learned ones. So a plan that is
  // learned at the largest shape of a step serves smaller shapes. The counterpart of the n-th allocation in a part
  // (BeginPart) is the n-th learned allocation of that part. An allocation gets its counterpart's place if it fits
  // there and nothing alive lies there. Otherwise it gets the lowest gap that holds it, or memory of the heap if no
  // gap does. Returns how many allocations came from the heap.
  int64_t ServeAnySize(Arena& arena, const std::function<void()>& body) const;

  // Called within a body, this tells that part `part` of the body begins here. An allocation is served only if it was
  // learned in the same part. So an extra allocation of an equal size in another part is noticed.
  static void BeginPart(uint32_t part);

  // The bytes of arena that the plan needs.
  size_t size() const { return size_; }
  // The memory of the plan itself, in bytes.
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
