#include "device/cpu/storage.h"

#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <unordered_map>
#include <utility>

#ifdef __APPLE__
#include <malloc/malloc.h>
#else
#include <malloc.h>
#endif

namespace permafrost::device {
namespace {

constexpr size_t kAlignment = 64;  // as in libtorch: the size of a cache line and of the widest vector

size_t UsableSize(void* block) {
#ifdef __APPLE__
  return malloc_size(block);
#else
  return malloc_usable_size(block);
#endif
}

std::atomic<int64_t> live_bytes{0}, peak_bytes{0};
std::atomic<int64_t> total_allocations{0};

void CountLive(int64_t bytes) {
  const int64_t now = live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t peak = peak_bytes.load(std::memory_order_relaxed);
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
}

size_t RoundUp(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Allocates a block, aligned to 64 bytes, and counts it. Returns nullptr for 0 bytes.
void* TakeHeap(size_t bytes) {
  if (bytes == 0) return nullptr;
  void* block = nullptr;
  const int error = posix_memalign(&block, kAlignment, bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, error == 0, "cannot allocate ", bytes, " bytes");
  CountLive(static_cast<int64_t>(UsableSize(block)));
  total_allocations.fetch_add(1, std::memory_order_relaxed);
  return block;
}

void GiveBackHeap(void* block) {
  if (block == nullptr) return;
  live_bytes.fetch_sub(static_cast<int64_t>(UsableSize(block)), std::memory_order_relaxed);
  std::free(block);
}

// The blocks of all arenas, so that a deleter can tell memory of an arena from memory of the heap. For most freed
// addresses, reading two atomics is enough, since most addresses lie below or above all arenas.
class ArenaBlocks {
 public:
  void Add(const char* begin, size_t bytes, Arena* arena) {
    const std::lock_guard lock(mu_);
    blocks_[begin] = {begin + bytes, arena};
    SetBounds();
  }
  void Remove(const char* begin) {
    const std::lock_guard lock(mu_);
    blocks_.erase(begin);
    SetBounds();
  }
  // Returns the arena whose block contains `pointer`; nullptr if there is none.
  Arena* Holding(const void* pointer) {
    const char* const place = static_cast<const char*>(pointer);
    const std::less<const char*> before;
    if (before(place, low_.load(std::memory_order_relaxed)) || !before(place, high_.load(std::memory_order_relaxed))) {
      return nullptr;
    }
    const std::lock_guard lock(mu_);
    const auto after = blocks_.upper_bound(place);
    if (after == blocks_.begin()) return nullptr;
    const Block& block = std::prev(after)->second;
    return before(place, block.end) ? block.arena : nullptr;
  }

 private:
  struct Block {
    const char* end = nullptr;
    Arena* arena = nullptr;
  };
  void SetBounds() {
    const char* high = nullptr;
    for (const auto& [begin, block] : blocks_) high = std::max(high, block.end, std::less<>());
    low_.store(blocks_.empty() ? nullptr : blocks_.begin()->first, std::memory_order_relaxed);
    high_.store(high, std::memory_order_relaxed);
  }

  std::mutex mu_;
  std::map<const char*, Block, std::less<>> blocks_;  // by begin
  std::atomic<const char*> low_{nullptr}, high_{nullptr};
};

// Never destroyed: tensors with static storage may outlive everything else.
ArenaBlocks& Arenas() {
  static auto* const arenas = new ArenaBlocks;
  return *arenas;
}

}  // namespace

// While a PlanSession is current, it serves the allocations of this thread.
class PlanSession {
 public:
  // Makes a session that learns allocations.
  PlanSession() = default;
  // Makes a session that serves exactly the learned allocations, or with `any_size` allocations of any sizes.
  PlanSession(const StoragePlan& plan, Arena& arena, bool any_size) : plan_(&plan), base_(arena.data()) {
    if (!any_size) return;
    arena_ = &arena;
    for (const void* block : arena.escaped_) alive_.push_back({static_cast<const char*>(block), nullptr});
  }
  PlanSession(const PlanSession&) = delete;
  ~PlanSession() {
    if (arena_ == nullptr) return;
    arena_->escaped_.clear();
    for (const Alive& block : alive_) arena_->escaped_.push_back(block.begin);
  }

  c10::DataPtr Allocate(size_t bytes);
  // Frees storage that this session served by ServeAnySize. Returns false if another session served it.
  bool OnArenaFree(const void* block);
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
  // Storage in the arena. If an earlier session served it, `end` is nullptr. Its place may then be reused although it
  // was not freed yet, so two entries may have one address.
  struct Alive {
    const char *begin = nullptr, *end = nullptr;
  };
  c10::DataPtr AllocateAnySize(size_t bytes);
  bool IsFree(const char* begin, size_t bytes) const;
  // Returns nullptr if no gap is large enough.
  char* LowestGap(size_t bytes) const;

  const StoragePlan* plan_ = nullptr;
  char* base_ = nullptr;
  Arena* arena_ = nullptr;  // set for ServeAnySize only
  std::vector<Alive> alive_;
  uint32_t part_ = 0;
  size_t next_ = 0;
  int64_t unplanned_ = 0;
  // Used while learning.
  int64_t clock_ = 0;
  std::vector<Lifetime> lifetimes_;
  std::unordered_map<void*, size_t> live_;
};

namespace {

thread_local PlanSession* current_session = nullptr;

// The deleter of storage that Serve served. The storage may outlive the arena.
void LeaveInArena(void* /*block*/) {}

// The deleter of storage that ServeAnySize served. The storage may outlive the arena, too.
void FreeInArena(void* block) {
  if (current_session != nullptr && current_session->OnArenaFree(block)) return;
  if (Arena* const arena = Arenas().Holding(block)) arena->NoteFree(block);
}

// The deleter of heap storage and of raw memory. Raw memory may also lie in an arena.
void Free(void* block) {
  if (block == nullptr) return;
  if (Arenas().Holding(block) != nullptr) return FreeInArena(block);
  if (current_session != nullptr) current_session->OnFree(block);
  GiveBackHeap(block);
}

c10::DataPtr DataOf(void* block, c10::DeleterFnPtr deleter = &Free) {
  return {block, block, deleter, c10::Device(c10::DeviceType::CPU)};
}

class StorageAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    if (current_session != nullptr && bytes > 0) return current_session->Allocate(bytes);
    return DataOf(TakeHeap(bytes));
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
};

// While a Within lives, its session is the current session of this thread.
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
    c10::DataPtr block = DataOf(TakeHeap(bytes));
    live_[block.get()] = lifetimes_.size();
    lifetimes_.push_back({.size = bytes, .part = part_, .begin = clock_++});
    return block;
  }
  if (arena_ != nullptr) return AllocateAnySize(bytes);
  if (next_ < plan_->slots_.size()) {
    const StoragePlan::Slot& slot = plan_->slots_[next_];
    if (slot.size == bytes && slot.part == part_) {
      ++next_;
      return DataOf(base_ + slot.offset, &LeaveInArena);
    }
  }
  next_ = plan_->slots_.size();
  ++unplanned_;
  return DataOf(TakeHeap(bytes));
}

c10::DataPtr PlanSession::AllocateAnySize(size_t bytes) {
  const std::vector<StoragePlan::Slot>& slots = plan_->slots_;
  const size_t room = RoundUp(bytes);
  while (next_ < slots.size() && slots[next_].part < part_) ++next_;
  char* place = nullptr;
  if (next_ < slots.size() && slots[next_].part == part_) {
    const StoragePlan::Slot& slot = slots[next_++];
    if (bytes <= slot.size && IsFree(base_ + slot.offset, room)) place = base_ + slot.offset;
  }
  if (place == nullptr) place = LowestGap(room);
  if (place == nullptr) {
    ++unplanned_;
    return DataOf(TakeHeap(bytes));
  }
  alive_.push_back({place, place + room});
  return DataOf(place, &FreeInArena);
}

bool PlanSession::IsFree(const char* begin, size_t bytes) const {
  return std::ranges::none_of(alive_, [&](const Alive& a) { return a.begin < begin + bytes && begin < a.end; });
}

char* PlanSession::LowestGap(size_t bytes) const {
  std::vector<Alive> blocks = alive_;
  std::erase_if(blocks, [](const Alive& a) { return a.end == nullptr; });
  std::ranges::sort(blocks, std::less<>(), &Alive::begin);
  const char* place = base_;
  for (const Alive& block : blocks) {
    if (place + bytes <= block.begin) break;
    place = std::max(place, block.end);
  }
  const size_t offset = static_cast<size_t>(place - base_);
  return offset + bytes <= plan_->size_ ? base_ + offset : nullptr;
}

bool PlanSession::OnArenaFree(const void* block) {
  if (arena_ == nullptr) return false;
  // If two blocks have one address, the entry of the older one is removed. If the younger one was freed, its place
  // stays reserved for too long, which is safe.
  const auto it = std::ranges::find(alive_, block, &Alive::begin);
  if (it == alive_.end()) return false;
  alive_.erase(it);
  return true;
}

// Places the largest blocks first. Each gets the lowest offset at which it overlaps no block that is alive at the
// same time.
StoragePlan PlanSession::MakePlan() const {
  StoragePlan plan;
  plan.slots_.resize(lifetimes_.size());
  std::vector<size_t> order(lifetimes_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    return lifetimes_[a].size != lifetimes_[b].size ? lifetimes_[a].size > lifetimes_[b].size : a < b;
  });
  std::vector<size_t> by_offset;  // the blocks placed so far
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

int64_t StoragePlan::Serve(Arena& arena, const std::function<void()>& body) const {
  return ServeFrom(arena, /*any_size=*/false, body);
}

int64_t StoragePlan::ServeAnySize(Arena& arena, const std::function<void()>& body) const {
  return ServeFrom(arena, /*any_size=*/true, body);
}

int64_t StoragePlan::ServeFrom(Arena& arena, bool any_size, const std::function<void()>& body) const {
  TORCH_CHECK(arena.bytes() >= size_, "the arena has ", arena.bytes(), " bytes; the plan needs ", size_);
  PlanSession session(*this, arena, any_size);
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
  Release();
  bytes_ = bytes;
}

void Arena::Release() {
  if (block_ == nullptr) return;
  Arenas().Remove(block_);
  GiveBackHeap(std::exchange(block_, nullptr));
  escaped_.clear();
}

void Arena::NoteFree(const void* block) {
  if (const auto it = std::ranges::find(escaped_, block); it != escaped_.end()) escaped_.erase(it);
}

char* Arena::data() {
  if (block_ == nullptr && bytes_ > 0) {
    block_ = static_cast<char*>(TakeHeap(bytes_));
    Arenas().Add(block_, bytes_, this);
  }
  return block_;
}

void InstallStorageAllocator() {
  static std::once_flag once;
  // Never destroyed: tensors with static storage may outlive everything else.
  std::call_once(once, [] {
    static auto* const allocator = new StorageAllocator;
    c10::SetCPUAllocator(allocator);
  });
}

StorageUse ReadStorageUse() {
  return {.bytes = live_bytes.load(std::memory_order_relaxed),
          .peak_bytes = peak_bytes.load(std::memory_order_relaxed),
          .allocations = total_allocations.load(std::memory_order_relaxed)};
}

void RestartStoragePeak() { peak_bytes.store(live_bytes.load(std::memory_order_relaxed), std::memory_order_relaxed); }

}  // namespace permafrost::device
