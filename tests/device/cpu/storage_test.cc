#include "device/cpu/storage.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

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
  const StorageCounters before = ReadStorageCounters();
  {
    const at::Tensor t = at::empty({1000}, at::kFloat);
    const StorageCounters during = ReadStorageCounters();
    EXPECT_GE(during.bytes - before.bytes, 4000);
    EXPECT_LE(during.bytes - before.bytes, 4000 + 128);
    EXPECT_EQ(during.allocations - before.allocations, 1);
  }
  EXPECT_EQ(ReadStorageCounters().bytes, before.bytes);
}

TEST_F(StorageTest, ServesWhatItLearnedWithoutTheHeap) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(100); });
  Arena arena;
  arena.Reserve(plan.size());
  const StorageCounters before = ReadStorageCounters();
  at::Tensor out;
  EXPECT_EQ(plan.Serve(arena, [&] { out = Body(100); }), 0);
  EXPECT_EQ(ReadStorageCounters().allocations, before.allocations);
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
  const StorageCounters before = ReadStorageCounters();
  const at::Tensor outside = at::empty({10});
  EXPECT_EQ(ReadStorageCounters().allocations, before.allocations + 1) << "from the heap";
  EXPECT_EQ(plan.Serve(arena, [] { Body(100); }), 0);
}

TEST_F(StorageTest, AnArenaTooSmallIsRefused) {
  const StoragePlan plan = StoragePlan::Learn([] { Body(100); });
  const Arena arena;
  EXPECT_THROW(plan.Serve(arena, [] { Body(100); }), c10::Error);
}

}  // namespace
}  // namespace permafrost::device
