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

// Makes two temporaries that live to the end, and one that is freed before the second of them is made.
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
  // In units of n floats, kept takes 1, passing 2, later 2 and the result 1. passing and later never live at the same
  // time.
  constexpr int64_t n = 4096;
  const StoragePlan plan = StoragePlan::Learn([] { Body(n); });
  const size_t unit = n * sizeof(float);
  EXPECT_LT(plan.size(), 5 * unit);
  EXPECT_GE(plan.size(), 4 * unit);
}

TEST_F(StorageTest, NothingAliveIsWrittenOver) {
  // Many tensors with random lifetimes hold a value each, which is checked while they live. The checks read memory
  // directly, because an operator would allocate.
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

// An extra allocation has the size of a later one. It must not get the later one's place, where something else may
// live.
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

// A caller that allocates raw memory frees it with a deleter that does not know where the memory came from.
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
  // Memory that is kept beyond the step is freed outside of any step.
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

// ---- One plan for every size

bool LiesIn(Arena& arena, const at::Tensor& tensor) {
  const char* const place = static_cast<const char*>(tensor.const_data_ptr());
  return place >= arena.data() && place < arena.data() + arena.bytes();
}

TEST_F(StorageTest, SmallerSizesHaveThePlacesOfTheLargerOnes) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(1000); });
  Arena arena;
  arena.Reserve(plan.size());
  at::Tensor out;
  EXPECT_EQ(plan.ServeAnySize(arena, [&] { out = Body(1000); }), 0);
  const void* const place = out.const_data_ptr();
  for (const int64_t n : {1, 999, 17, 1000}) {
    out.reset();
    const StorageUse before = ReadStorageUse();
    EXPECT_EQ(plan.ServeAnySize(arena, [&] { out = Body(n); }), 0) << n;
    EXPECT_EQ(ReadStorageUse().allocations, before.allocations);
    EXPECT_EQ(out.const_data_ptr(), place);
    const float* values = out.const_data_ptr<float>();
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(values[i], 6) << n;
  }
  EXPECT_GT(plan.ServeAnySize(arena, [&] { out = Body(1200); }), 0);
  EXPECT_TRUE(out.equal(at::full({1200}, 6.0)));
}

// Sizes, order and lifetimes that are unrelated to the learned ones.
TEST_F(StorageTest, WhateverComesNothingAliveIsWrittenOver) {
  int64_t in_arena = 0;
  const auto body = [&](uint32_t random, int64_t largest, Arena* arena) {
    std::vector<at::Tensor> alive;
    for (uint32_t i = 0; i < 200; ++i) {
      random = random * 1664525 + 1013904223;
      StoragePlan::BeginPart(i / 3);
      alive.push_back(at::full({1 + static_cast<int64_t>(random >> 8) % largest}, i, at::kFloat));
      if (arena != nullptr && LiesIn(*arena, alive.back())) ++in_arena;
      if (random >> 16 & 1) alive.erase(alive.begin() + static_cast<std::ptrdiff_t>((random >> 8) % alive.size()));
      for (const at::Tensor& t : alive) {
        const float* values = t.const_data_ptr<float>();
        for (int64_t k = 1; k < t.numel(); ++k) ASSERT_EQ(values[k], values[0]) << i;
      }
    }
  };
  const StoragePlan plan = StoragePlan::Learn([&] { body(1, 200, nullptr); });
  Arena arena;
  arena.Reserve(plan.size());
  for (uint32_t seed = 1; seed < 30; ++seed) {
    plan.ServeAnySize(arena, [&] { body(seed, 10 + 10 * static_cast<int64_t>(seed), &arena); });
  }
  EXPECT_GT(in_arena, 29 * 200 / 2) << "the arena serves what it can";
}

// Two tensors lie at one address, and the older one is freed while the younger one lives.
TEST_F(StorageTest, AFreeFromBeforeGivesNoPlaceAway) {
  const auto body = [](at::Tensor* from_before, bool other) {
    const at::Tensor first = at::full({1000}, 1.0);
    if (from_before != nullptr) from_before->reset();
    // The plan gives the next allocation the place of `first` too, because in the learned step that place was free by
    // then.
    const at::Tensor more = other ? at::full({1000}, 2.0) : at::Tensor();
    const at::Tensor last = at::full({1000}, 3.0);
    const float* values = first.const_data_ptr<float>();
    for (int i = 0; i < 1000; ++i) ASSERT_EQ(values[i], 1);
  };
  at::Tensor held;
  const StoragePlan plan = StoragePlan::Learn([&] {
    { held = at::full({1000}, 5.0); }
    held.reset();
    const at::Tensor again = at::full({1000}, 6.0);
    const at::Tensor third = at::full({1000}, 7.0);
  });
  Arena arena;
  arena.Reserve(plan.size());
  EXPECT_EQ(plan.ServeAnySize(arena, [&] { held = at::full({1000}, 5.0); }), 0);
  plan.ServeAnySize(arena, [&] { body(&held, true); });
  // Here the older tensor is freed between two steps.
  EXPECT_EQ(plan.ServeAnySize(arena, [&] { held = at::full({1000}, 5.0); }), 0);
  held.reset();
  plan.ServeAnySize(arena, [&] { body(nullptr, false); });
}

TEST_F(StorageTest, RawMemoryOfAnySizeGoesBackToTheArena) {
  c10::Allocator& allocator = *c10::GetCPUAllocator();
  const auto body = [&](size_t bytes) {
    // Each allocation takes the same place, which is free every time.
    for (int i = 0; i < 5; ++i) {
      StoragePlan::BeginPart(0);
      allocator.raw_deallocate(allocator.raw_allocate(bytes));
    }
  };
  const StoragePlan plan = StoragePlan::Learn([&] { body(1000); });
  Arena arena;
  arena.Reserve(plan.size());
  EXPECT_LE(plan.size(), 1024U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(plan.ServeAnySize(arena, [&] { body(800); }), 0);
}

TEST_F(StorageTest, AnArenaTooSmallIsRefused) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(100); });
  Arena arena;
  EXPECT_THROW(plan.Serve(arena, [] { Body(100); }), c10::Error);
}

}  // namespace
}  // namespace permafrost::device
