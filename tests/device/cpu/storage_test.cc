#include "device/cpu/storage.h"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>

namespace permafrost::device {
namespace {

class StorageTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { InstallStorageAllocator(); }
};

// Two temporaries of which one lives to the end, and one that is freed on the way.
at::Tensor Body(int64_t n) {
  const at::Tensor kept = at::full({n}, 1.0);
  {
    const at::Tensor passing = at::full({2 * n}, 2.0);
    kept.add_(passing.narrow(0, 0, n));
  }
  const at::Tensor later = at::full({2 * n}, 3.0);
  return kept + later.narrow(0, 0, n);
}

TEST_F(StorageTest, CountsLiveBytesAndAllocations) {
  const StorageUse before = ReadStorageUse();
  {
    const at::Tensor t = at::empty({1000}, at::kFloat);
    const StorageUse during = ReadStorageUse();
    EXPECT_GE(during.bytes - before.bytes, 4000);
    EXPECT_LE(during.bytes - before.bytes, 4000 + 128);
    EXPECT_EQ(during.allocations - before.allocations, 1);
  }
  EXPECT_EQ(ReadStorageUse().bytes, before.bytes);
}

TEST_F(StorageTest, ServesWhatItLearnedWithoutTheHeap) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(100); });
  Arena arena;
  arena.Reserve(plan.size());
  ASSERT_NE(arena.data(), nullptr);
  const StorageUse before = ReadStorageUse();
  at::Tensor out;
  EXPECT_EQ(plan.Serve(arena, [&] { out = Body(100); }), 0);
  EXPECT_EQ(ReadStorageUse().allocations, before.allocations);
  EXPECT_TRUE(out.equal(at::full({100}, 6.0)));
  const char* const place = static_cast<const char*>(out.const_data_ptr());
  EXPECT_TRUE(place >= arena.data() && place < arena.data() + arena.bytes());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % 64, 0U);
}

TEST_F(StorageTest, LifetimesThatDoNotMeetShareRoom) {
  // kept 1, passing 2, later 2, result 1 (in units of n floats): passing and later never live together.
  constexpr int64_t n = 4096;
  const StoragePlan plan = StoragePlan::Learn([] { Body(n); });
  const size_t unit = n * sizeof(float);
  EXPECT_LT(plan.size(), 5 * unit);
  EXPECT_GE(plan.size(), 4 * unit);
}

TEST_F(StorageTest, NothingAliveIsWrittenOver) {
  // Many tensors of random lifetimes, each with its own value, which is read while it lives. Plain reads: an operator
  // would allocate.
  std::set<const void*> places;
  const auto body = [&] {
    std::vector<at::Tensor> alive;
    uint32_t random = 1;
    for (int i = 0; i < 300; ++i) {
      random = random * 1664525 + 1013904223;
      alive.push_back(at::full({1 + static_cast<int64_t>(random >> 24)}, i, at::kFloat));
      places.insert(alive.back().const_data_ptr());
      if (random >> 16 & 1) alive.erase(alive.begin() + static_cast<std::ptrdiff_t>((random >> 8) % alive.size()));
      for (const at::Tensor& t : alive) {
        const float* values = t.const_data_ptr<float>();
        for (int64_t k = 1; k < t.numel(); ++k) ASSERT_EQ(values[k], values[0]) << i;
      }
    }
  };
  const StoragePlan plan = StoragePlan::Learn(body);
  Arena arena;
  arena.Reserve(plan.size());
  places.clear();
  EXPECT_EQ(plan.Serve(arena, body), 0);
  EXPECT_LT(places.size(), 300U) << "room is used again";
}

TEST_F(StorageTest, WhatIsNotInThePlanComesFromTheHeapAndIsCounted) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(100); });
  Arena arena;
  arena.Reserve(plan.size());
  at::Tensor out;
  EXPECT_GT(plan.Serve(arena, [&] { out = Body(101); }), 0);
  EXPECT_TRUE(out.equal(at::full({101}, 6.0)));
}

// One more allocation of a size that comes later: it must not be given that one's place, where something else may live.
TEST_F(StorageTest, AnAllocationInBetweenDoesNotShiftTheRest) {
  const auto body = [](bool extra) {
    StoragePlan::BeginPart(0);
    const at::Tensor a = at::full({1000}, 1.0);
    at::Tensor more;
    if (extra) {
      StoragePlan::BeginPart(1);
      more = at::full({1000}, 2.0);
    }
    StoragePlan::BeginPart(2);
    { const at::Tensor passing = at::full({1000}, 3.0); }
    const at::Tensor c = at::full({1000}, 4.0);
    const auto all = [](const at::Tensor& t, float value) {
      const float* values = t.const_data_ptr<float>();
      for (int64_t i = 0; i < t.numel(); ++i) EXPECT_EQ(values[i], value);
    };
    all(a, 1);
    if (extra) all(more, 2);
    all(c, 4);
  };
  const StoragePlan plan = StoragePlan::Learn([&] { body(false); });
  Arena arena;
  arena.Reserve(plan.size());
  EXPECT_EQ(plan.Serve(arena, [&] { body(false); }), 0);
  EXPECT_EQ(plan.Serve(arena, [&] { body(true); }), 3) << "from the first that is not planned on";
}

TEST_F(StorageTest, AnExceptionLeavesNoSessionBehind) {
  EXPECT_THROW((void)StoragePlan::Learn([] { throw std::runtime_error("x"); }), std::runtime_error);
  const StoragePlan plan = StoragePlan::Learn([] { Body(100); });
  Arena arena;
  arena.Reserve(plan.size());
  EXPECT_THROW(plan.Serve(arena, [] { throw std::runtime_error("x"); }), std::runtime_error);
  const StorageUse before = ReadStorageUse();
  const at::Tensor outside = at::empty({10});
  EXPECT_EQ(ReadStorageUse().allocations, before.allocations + 1) << "from the heap";
  EXPECT_EQ(plan.Serve(arena, [] { Body(100); }), 0);
}

TEST_F(StorageTest, ThePeakIsTheMostAtOnceSinceItWasRestarted) {
  RestartStoragePeak();
  const StorageUse before = ReadStorageUse();
  EXPECT_EQ(before.peak_bytes, before.bytes);
  { const at::Tensor large = at::empty({1'000'000}, at::kFloat); }
  const at::Tensor small = at::empty({1000}, at::kFloat);
  const int64_t peak = ReadStorageUse().peak_bytes - before.bytes;
  EXPECT_GE(peak, 4'000'000);
  EXPECT_LT(peak, 4'004'000) << "the small one came when the large one was gone";
  RestartStoragePeak();
  EXPECT_LT(ReadStorageUse().peak_bytes - before.bytes, 10'000);
}

TEST_F(StorageTest, AnArenaGivesItsMemoryBackAndTakesItAgain) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(100'000); });
  const int64_t before = ReadStorageUse().bytes;
  Arena arena;
  arena.Reserve(plan.size());
  EXPECT_EQ(ReadStorageUse().bytes, before) << "not before it is used";
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(plan.Serve(arena, [] { Body(100'000); }), 0);
    EXPECT_GE(ReadStorageUse().bytes, before + static_cast<int64_t>(plan.size()));
    arena.Release();
    EXPECT_EQ(ReadStorageUse().bytes, before);
    EXPECT_EQ(arena.bytes(), plan.size());
  }
}

// Who allocates raw memory frees it by a deleter that does not know where it came from.
TEST_F(StorageTest, OneDeleterServesHeapAndArena) {
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  std::array<void*, 3> blocks{};
  const auto body = [&] {
    at::Tensor held = at::full({100}, 1.0);
    void* const raw = allocator.raw_allocate(1000);
    blocks[0] = raw;
    blocks[1] = held.mutable_data_ptr();
    std::memset(raw, 7, 1000);
    allocator.raw_deallocate(raw);
    EXPECT_EQ(held.sum().item<double>(), 100);
  };
  const StoragePlan plan = StoragePlan::Learn(body);
  Arena arena;
  arena.Reserve(plan.size());
  ASSERT_NE(arena.data(), nullptr);
  const StorageUse before = ReadStorageUse();
  EXPECT_EQ(plan.Serve(arena, body), 0);
  const auto* const place = static_cast<const char*>(blocks[0]);
  EXPECT_TRUE(place >= arena.data() && place < arena.data() + arena.bytes());
  EXPECT_EQ(ReadStorageUse().bytes, before.bytes) << "was taken for a block of the heap";
  // One that is kept beyond the step is freed outside of any.
  const StoragePlan keeps = StoragePlan::Learn([&] { blocks[2] = allocator.raw_allocate(1000); });
  allocator.raw_deallocate(blocks[2]);
  arena.Reserve(keeps.size());
  EXPECT_EQ(keeps.Serve(arena, [&] { blocks[2] = allocator.raw_allocate(1000); }), 0);
  allocator.raw_deallocate(blocks[2]);
  void* const heap = allocator.raw_allocate(1000);
  EXPECT_GE(ReadStorageUse().bytes, before.bytes + 1000);
  allocator.raw_deallocate(heap);
  EXPECT_EQ(ReadStorageUse().bytes, before.bytes);
}

TEST_F(StorageTest, ATensorMayOutliveItsArena) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(100); });
  const int64_t before = ReadStorageUse().bytes;
  at::Tensor out;
  {
    Arena arena;
    arena.Reserve(plan.size());
    EXPECT_EQ(plan.Serve(arena, [&] { out = Body(100); }), 0);
  }
  out.reset();
  EXPECT_EQ(ReadStorageUse().bytes, before);
}

TEST_F(StorageTest, AnArenaTooSmallIsRefused) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(100); });
  Arena arena;
  EXPECT_THROW(plan.Serve(arena, [] { Body(100); }), c10::Error);
}

}  // namespace
}  // namespace permafrost::device
