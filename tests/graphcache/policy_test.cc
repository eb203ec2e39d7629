#include "graphcache/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace permafrost::graphcache {
namespace {

TEST(PolicyTest, FreezeAtIsDerivedOrWithinItsRange) {
  const struct {
    int64_t freeze_at;
    bool accepted;
  } kCases[] = {{-1, false}, {0, true}, {1, true}, {kMaxFreezeAt, true}, {kMaxFreezeAt + 1, false}};
  for (const auto& c : kCases) {
    Violations violations;
    Validate({.freeze_at = c.freeze_at}, "spec.graph_cache.", violations);
    EXPECT_EQ(violations.empty(), c.accepted) << c.freeze_at;
  }
}

TEST(PolicyTest, RungsAreTheDefaultOrWithinTheirRange) {
  const struct {
    int64_t rungs;
    bool accepted;
    int64_t used;
  } kCases[] = {{-1, false, 8}, {0, true, 8}, {1, true, 1}, {64, true, 64}, {65, false, 65}};
  for (const auto& c : kCases) {
    Violations violations;
    Validate({.rungs = c.rungs}, "spec.graph_cache.", violations);
    EXPECT_EQ(violations.empty(), c.accepted) << c.rungs;
    EXPECT_EQ(RungsOf({.rungs = c.rungs}), c.used);
  }
}

TEST(PolicyTest, AViolationNamesTheFieldTheValueAndTheRange) {
  Violations violations;
  Validate({.freeze_at = -7}, "spec.graph_cache.", violations);
  EXPECT_THAT(
      GetViolations(violations.ToStatus()),
      testing::ElementsAre(FieldViolation{"spec.graph_cache.freeze_at", "-7 is outside 1..100000, or 0 to derive it"}));
}

}  // namespace
}  // namespace permafrost::graphcache
