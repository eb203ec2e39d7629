#include "data/catalog/imports.h"

#include <gtest/gtest.h>

namespace permafrost::data {
namespace {

constexpr absl::Duration kNow = absl::Hours(1);

TEST(ImportQueue, WhatWaitsLetsOthersGoBeforeIt) {
  ImportQueue queue;
  const DatasetId waits("waits"), first("first"), second("second");
  queue.Add(waits, kNow + absl::Seconds(3));
  queue.Add(first);
  queue.Add(second, kNow);
  absl::Duration wait;
  EXPECT_EQ(queue.Take(kNow, wait), first);
  EXPECT_EQ(queue.Take(kNow, wait), second);
  EXPECT_EQ(queue.Take(kNow, wait), std::nullopt);
  EXPECT_EQ(wait, absl::Seconds(3));
  EXPECT_EQ(queue.Take(kNow + wait, wait), waits);
  EXPECT_EQ(queue.Take(kNow + absl::Hours(1), wait), std::nullopt);
  EXPECT_EQ(wait, absl::InfiniteDuration());
}

TEST(ImportQueue, TheShortestWaitCounts) {
  ImportQueue queue;
  queue.Add(DatasetId("long"), kNow + absl::Seconds(9));
  queue.Add(DatasetId("short"), kNow + absl::Seconds(2));
  queue.Add(DatasetId("middle"), kNow + absl::Seconds(5));
  absl::Duration wait;
  EXPECT_EQ(queue.Take(kNow, wait), std::nullopt);
  EXPECT_EQ(wait, absl::Seconds(2));
}

TEST(ImportQueue, WhatWasRemovedDoesNotCome) {
  ImportQueue queue;
  queue.Add(DatasetId("gone"));
  EXPECT_TRUE(queue.Remove(DatasetId("gone")));
  EXPECT_FALSE(queue.Remove(DatasetId("gone")));
  absl::Duration wait;
  EXPECT_EQ(queue.Take(kNow, wait), std::nullopt);
}

}  // namespace
}  // namespace permafrost::data
