#include "data/batching/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <new>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "data/batching/batch.h"

namespace permafrost::data {
namespace {

absl::Status Mark(int64_t index, PaddedBatch& out) {
  out.real.nodes = index;
  out.node_ints.assign(100, index);
  return absl::OkStatus();
}

TEST(Prefetcher, AllInOrderThenNull) {
  for (const int64_t depth : {1, 2, 7, 100}) {
    Prefetcher<PaddedBatch> prefetcher(50, depth, Mark);
    for (int64_t i = 0; i < 50; ++i) {
      const auto batch = prefetcher.Next();
      ASSERT_TRUE(batch.ok());
      ASSERT_NE(*batch, nullptr);
      EXPECT_EQ((*batch)->real.nodes, i);
      EXPECT_EQ((*batch)->node_ints, AlignedVector<int64_t>(100, i)) << "not refilled while it is ours";
    }
    EXPECT_EQ(*prefetcher.Next(), nullptr);
    EXPECT_EQ(*prefetcher.Next(), nullptr);
  }
}

TEST(Prefetcher, NoBatches) {
  Prefetcher<PaddedBatch> prefetcher(0, 2, Mark);
  EXPECT_EQ(*prefetcher.Next(), nullptr);
}

TEST(Prefetcher, RunsAheadByDepthAndNoFurther) {
  absl::Mutex mu;
  int64_t produced = 0;
  Prefetcher<PaddedBatch> prefetcher(100, 3, [&](int64_t index, PaddedBatch& out) {
    absl::MutexLock lock(&mu);
    produced = index + 1;
    return Mark(index, out);
  });
  ASSERT_TRUE(prefetcher.Next().ok());  // takes one batch, so that three more may be produced
  const auto ahead = [&] { return produced >= 4; };
  absl::MutexLock lock(&mu, absl::Condition(&ahead));
  EXPECT_EQ(produced, 4);
}

TEST(Prefetcher, AnErrorComesInItsPlaceAndStays) {
  Prefetcher<PaddedBatch> prefetcher(10, 5, [](int64_t index, PaddedBatch& out) {
    return index == 3 ? absl::DataLossError("batch 3") : Mark(index, out);
  });
  for (int64_t i = 0; i < 3; ++i) {
    const auto batch = prefetcher.Next();
    ASSERT_TRUE(batch.ok()) << i;
    EXPECT_EQ((*batch)->real.nodes, i);
  }
  for (int repeat = 0; repeat < 3; ++repeat) EXPECT_EQ(prefetcher.Next().status(), absl::DataLossError("batch 3"));
}

TEST(Prefetcher, AnExceptionIsAnErrorAndNotTheEndOfTheProcess) {
  Prefetcher<PaddedBatch> prefetcher(3, 1, [](int64_t index, PaddedBatch&) -> absl::Status {
    if (index == 1) throw std::bad_alloc();
    return absl::OkStatus();
  });
  ASSERT_TRUE(prefetcher.Next().ok());
  EXPECT_EQ(prefetcher.Next().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(Prefetcher, DestructionDoesNotWaitForTheRest) {
  std::atomic<int64_t> produced = 0;
  {
    absl::Notification begun;
    Prefetcher<PaddedBatch> prefetcher(1'000'000'000, 2, [&](int64_t index, PaddedBatch& out) {
      if (index == 0) begun.Notify();
      ++produced;
      return Mark(index, out);
    });
    begun.WaitForNotification();
  }
  EXPECT_LE(produced, 3);
}

}  // namespace
}  // namespace permafrost::data
