// Small parts of the MPS backend.
#include <gtest/gtest.h>

#include <thread>

#include "device/backend.h"
#include "device/mps/graph_cache.h"
#include "device/mps/mps_backend.h"

namespace permafrost::device {
namespace {

TEST(AutoreleasePoolTest, PoolsOfAThreadAreCounted) {
  EXPECT_EQ(AutoreleasePool::depth(), 0);
  {
    const AutoreleasePool outer;
    {
      const AutoreleasePool inner;
      EXPECT_EQ(AutoreleasePool::depth(), 2);
      std::thread([] { EXPECT_EQ(AutoreleasePool::depth(), 0); }).join();
    }
    EXPECT_EQ(AutoreleasePool::depth(), 1);
  }
  EXPECT_EQ(AutoreleasePool::depth(), 0);
}

TEST(DriverThresholdTest, DueAtTheLimitAndAfterThatWhenAQuarterMoreIsHeld) {
  DriverThreshold threshold(1000);
  EXPECT_FALSE(threshold.Due(999));
  EXPECT_TRUE(threshold.Due(1000));
  threshold.OnEmptied();
  EXPECT_FALSE(threshold.Due(400)) << "refilled";
  EXPECT_TRUE(threshold.Due(1000)) << "emptying helped: the limit holds";
  threshold.OnEmptied();
  EXPECT_FALSE(threshold.Due(2000)) << "refilled with more than the limit";
  EXPECT_FALSE(threshold.Due(2499));
  EXPECT_TRUE(threshold.Due(2500));
}

TEST(DriverThresholdTest, OfNothingIsNeverDue) {
  DriverThreshold off(0);
  EXPECT_FALSE(off.Due(int64_t{1} << 50));
}

TEST(OwnerThreadTest, TheFirstThatAsksIsTheOwner) {
  OwnerThread owner;
  EXPECT_FALSE(owner.IsThis());
  std::thread([&] { EXPECT_EQ(owner.Claim("a step"), absl::OkStatus()); }).join();
  EXPECT_FALSE(owner.IsThis());
  const absl::Status refused = owner.Claim("a step");
  EXPECT_EQ(refused.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(refused.message().substr(0, 7), "a step:");
}

}  // namespace
}  // namespace permafrost::device
