#include "base/resources.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "base/status.h"
#include "temp_dir.h"

namespace permafrost {
namespace {

using testing::HasSubstr;

TEST(DiskReserve, KeepsItsBytesFree) {
  const TempDir dir;
  const DiskReserve one(dir.path(), 1);
  ASSERT_TRUE(one.Free());
  EXPECT_TRUE(one.Check().ok()) << one.Check();
  EXPECT_FALSE(one.Check(std::numeric_limits<uint64_t>::max()).ok()) << "what is wanted counts too";
  const DiskReserve all(dir.path(), uint64_t{1} << 60);
  const absl::Status full = all.Check();
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_TRUE(IsTransient(full)) << "others may delete something";
  EXPECT_EQ(GetReason(full).reason, "DISK_NEARLY_FULL");
  EXPECT_EQ(GetReason(full).metadata.at("reserve"), std::to_string(uint64_t{1} << 60));
  EXPECT_THAT(std::string(full.message()), HasSubstr(dir.path().string() + ": the disk is nearly full: "));
  EXPECT_THAT(std::string(full.message()), HasSubstr("--min-free-disk"));
}

TEST(DiskReserve, OfNothingOrOfAnUnknownDiskItKeepsNothing) {
  EXPECT_TRUE(DiskReserve().Check(std::numeric_limits<uint64_t>::max()).ok());
  const TempDir dir;
  EXPECT_TRUE(DiskReserve(dir.path(), 0).Check(std::numeric_limits<uint64_t>::max()).ok());
  EXPECT_TRUE(DiskReserve(dir.path() / "none", uint64_t{1} << 60).Check().ok());
}

}  // namespace
}  // namespace permafrost
