#include "device/cpu/storage.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <numeric>
#include <unordered_map>

#ifdef __APPLE__
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif

namespace permafrost::device {

constexpr size_t kAlignment = 64;  // as libtorch's: a cache line, and the widest vector

namespace {

size_t UsableSize(void* block) {
#ifdef __APPLE__
  return malloc_size(block);
#else
  return malloc_usable_size(block);
#endif
}

std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> total_allocations{0};

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

// What allocations on this thread do just now.
class PlanSession {
 public:
  // Learns.
  PlanSession() = default;
  // Serves.
  PlanSession(const StoragePlan& plan, const Arena& arena) : plan_(&plan), base_(arena.data()) {}

  c10::DataPtr Allocate(size_t bytes);
  void OnFree(void* block) {
    if (const auto it = live_.find(block); it != live_.end()) {
      lifetimes_[it->second].end = clock_++;
      live_.erase(it);
    }
  }
  void BeginPart(uint32_t part) { part_ = part; }
  int64_t unplanned() const { return unplanned_; }
  StoragePlan MakePlan() const;

 private:
  struct Lifetime {
    size_t size = 0;
    uint32_t part = 0;
    int64_t begin = 0, end = std::numeric_limits<int64_t>::max();
  };
  const StoragePlan* plan_ = nullptr;
  char* base_ = nullptr;
  uint32_t part_ = 0;
  size_t next_ = 0;
  int64_t unplanned_ = 0;
  // While learning.
  int64_t clock_ = 0;
  std::vector<Lifetime> lifetimes_;
  std::unordered_map<void*, size_t> live_;
};

namespace {

thread_local PlanSession* current_session = nullptr;

void FreeHeap(void* block) {
  if (block == nullptr) return;
  if (current_session != nullptr) current_session->OnFree(block);
  live_bytes.fetch_sub(static_cast<int64_t>(UsableSize(block)), std::memory_order_relaxed);
  std::free(block);
}

void LeaveInArena(void* /*block*/) {}

c10::DataPtr AllocateHeap(size_t bytes) {
  const c10::Device cpu(c10::DeviceType::CPU);
  if (bytes == 0) return {nullptr, nullptr, &FreeHeap, cpu};
  void* block = nullptr;
  const int error = posix_memalign(&block, kAlignment, bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, error == 0, "cannot allocate ", bytes, " bytes");
  live_bytes.fetch_add(static_cast<int64_t>(UsableSize(block)), std::memory_order_relaxed);
  total_allocations.fetch_add(1, std::memory_order_relaxed);
  return {block, block, &FreeHeap, cpu};
}

class StorageAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (current_session != nullptr && bytes > 0) return current_session->Allocate(bytes);
    return AllocateHeap(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return &FreeHeap; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// Makes a session the thread's for a scope.
class Within {
 public:
  explicit Within(PlanSession& session) {
    TORCH_CHECK(current_session == nullptr, "storage plans do not nest");
    current_session = &session;
  }
  Within(const Within&) = delete;
  ~Within() { current_session = nullptr; }
};

}  // namespace

c10::DataPtr PlanSession::Allocate(size_t bytes) {
  if (plan_ == nullptr) {
    c10::DataPtr block = AllocateHeap(bytes);
    live_[block.get()] = lifetimes_.size();
    lifetimes_.push_back({.size = bytes, .part = part_, .begin = clock_++});
    return block;
  }
  if (next_ < plan_->slots_.size()) {
    const StoragePlan::Slot& slot = plan_->slots_[next_];
    if (slot.size == bytes && slot.part == part_) {
      ++next_;
      char* const place = base_ + slot.offset;
      return {place, place, &LeaveInArena, c10::Device(c10::DeviceType::CPU)};
    }
  }
  next_ = plan_->slots_.size();
  ++unplanned_;
  return AllocateHeap(bytes);
}

// Largest first, each at the lowest offset where no block of an overlapping lifetime lies.
StoragePlan PlanSession::MakePlan() const {
  StoragePlan plan;
  plan.slots_.resize(lifetimes_.size());
  std::vector<size_t> order(lifetimes_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return lifetimes_[a].size != lifetimes_[b].size ? lifetimes_[a].size > lifetimes_[b].size : a < b;
  });
  std::vector<size_t> by_offset;  // placed ones
  for (const size_t i : order) {
    const Lifetime& mine = lifetimes_[i];
    const size_t size = RoundUp(mine.size);
    size_t offset = 0;
    for (const size_t j : by_offset) {
      const Lifetime& other = lifetimes_[j];
      if (other.begin > mine.end || mine.begin > other.end) continue;
      if (plan.slots_[j].offset >= offset + size) break;
      offset = std::max(offset, plan.slots_[j].offset + RoundUp(other.size));
    }
    plan.slots_[i] = {.size = mine.size, .offset = offset, .part = mine.part};
    plan.size_ = std::max(plan.size_, offset + size);
    const auto after = std::ranges::upper_bound(by_offset, offset, {}, [&](size_t j) { return plan.slots_[j].offset; });
    by_offset.insert(after, i);
  }
  return plan;
}

StoragePlan StoragePlan::Learn(const std::function<void()>& body) {
  PlanSession session;
  {
    const Within within(session);
    body();
  }
  return session.MakePlan();
}

int64_t StoragePlan::Serve(const Arena& arena, const std::function<void()>& body) const {
  TORCH_CHECK(arena.bytes() >= size_, "the arena has ", arena.bytes(), " bytes; the plan needs ", size_);
  PlanSession session(*this, arena);
  {
    const Within within(session);
    body();
  }
  return session.unplanned();
}

void StoragePlan::BeginPart(uint32_t part) {
  if (current_session != nullptr) current_session->BeginPart(part);
}

void Arena::Reserve(size_t bytes) {
  if (bytes <= bytes_) return;
  block_.clear();
  block_ = AllocateHeap(bytes);
  bytes_ = bytes;
}

void InstallStorageAllocator() {
  static std::once_flag once;
  // Never destroyed: tensors of static storage may outlive anything.
  std::call_once(once, [] {
    static auto* const allocator = new StorageAllocator;
    c10::SetCPUAllocator(allocator);
  });
}

StorageCounters ReadStorageCounters() {
  return {live_bytes.load(std::memory_order_relaxed), total_allocations.load(std::memory_order_relaxed)};
}

}  // namespace permafrost::device
