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

TEST(PolicyTest, AViolationNamesTheFieldTheValueAndTheRange) {
  Violations violations;
  Validate({.freeze_at = -7}, "spec.graph_cache.", violations);
  EXPECT_THAT(
      GetViolations(violations.ToStatus()),
      testing::ElementsAre(FieldViolation{"spec.graph_cache.freeze_at", "-7 is outside 1..100000, or 0 to derive it"}));
}

}  // namespace
}  // namespace permafrost::graphcache
