// Storage of CPU tensors. All of it is counted. While a captured step is replayed it comes from a plan instead of the
// heap: a step on equal shapes allocates equal sizes in equal order, so that one replay is enough to learn the size and
// lifetime of every allocation. Later replays are served from fixed offsets of one block, the arena, that all
// executables of a job share.
// Threads: counters are safe anywhere. A StoragePlan and an Arena belong to the device thread; allocations of other
// threads during a replay come from the heap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/device.h"

namespace permafrost::device {

// Puts the counting allocator in place of libtorch's for CPU tensors; further calls do nothing. Storage from before is
// not counted. Call before the first tensor.
void InstallStorageAllocator();

StorageUse ReadStorageUse();
// The peak begins anew at what is live now.
void RestartStoragePeak();

// One block of memory, 64-byte aligned, that a job's plans are served from.
// Its size is that of the largest plan. The memory is taken at its first use and kept until Release.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { Release(); }

  // Makes it at least `bytes` large. Where it grows, nothing that was served from it is valid any more.
  void Reserve(size_t bytes);
  // Gives the memory back until the next use. Nothing that was served from it is valid any more.
  void Release();
  size_t bytes() const { return bytes_; }
  // Throws c10::OutOfMemoryError.
  char* data();
  // Notes that storage that ServeAnySize gave, and that outlived its session, is freed now.
  void NoteFree(const void* block);

 private:
  friend class PlanSession;
  char* block_ = nullptr;
  size_t bytes_ = 0;
  // The places of storage of ServeAnySize that outlived its session.
  std::vector<const void*> escaped_;
};

class StoragePlan {
 public:
  // Runs `body` on the heap and learns its allocations. Storage that is alive when it returns is taken to live on until
  // the next step.
  static StoragePlan Learn(const std::function<void()>& body);

  // Runs `body` with its allocations served from the arena, which must have size() bytes. As long as they come as they
  // were learned, each has its planned place; from the first that differs on, all come from the heap, since later
  // places may hold what is still alive. Returns how many came from the heap: 0 for the body that was learned.
  int64_t Serve(Arena& arena, const std::function<void()>& body) const;

  // The same for a body whose allocations have other sizes than those that were learned, or come in another order: what
  // is learned at the largest shape of a step serves the smaller ones. Each gets the place of its counterpart, the one
  // of equal part and order in it, where it fits there and nothing alive lies there; else the lowest gap that holds it;
  // else heap. Returns how many came from the heap.
  int64_t ServeAnySize(Arena& arena, const std::function<void()>& body) const;

  // Within a body: which part of it begins here. An allocation is served only if it was learned in the same part, so
  // that one more of an equal size, in another part, is noticed.
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
  int64_t ServeFrom(Arena& arena, bool any_size, const std::function<void()>& body) const;
  std::vector<Slot> slots_;  // in the order of allocation
  size_t size_ = 0;
};

}  // namespace permafrost::device
