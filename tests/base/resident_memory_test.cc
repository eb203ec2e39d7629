#include "base/resources.h"

#include <gtest/gtest.h>

#include <vector>

namespace permafrost {
namespace {

TEST(ResidentMemory, GrowsWithWhatIsTouched) {
  const uint64_t before = ResidentBytes();
  ASSERT_GT(before, 0u);
  constexpr size_t kBytes = 64 << 20;
  const std::vector<char> touched(kBytes, 1);
  const uint64_t after = ResidentBytes();
  EXPECT_GE(after, before + kBytes / 2);
  EXPECT_EQ(touched.back(), 1);
}

}  // namespace
}  // namespace permafrost
