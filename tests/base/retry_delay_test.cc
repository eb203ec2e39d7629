#include "base/monotonic.h"

#include <gtest/gtest.h>

namespace permafrost {
namespace {

TEST(RetryDelay, DoublesToItsBound) {
  const struct {
    const char* why;
    int tries;
    absl::Duration want;
  } kCases[] = {
      {"nothing failed", 0, absl::ZeroDuration()},
      {"the first", 1, absl::Seconds(1)},
      {"twice as long", 2, absl::Seconds(2)},
      {"and again", 9, absl::Seconds(256)},
      {"the bound", 10, kLongestRetry},
      {"no overflow", 1'000'000, kLongestRetry},
  };
  for (const auto& c : kCases) EXPECT_EQ(RetryDelay(absl::Seconds(1), c.tries), c.want) << c.why;
}

}  // namespace
}  // namespace permafrost
