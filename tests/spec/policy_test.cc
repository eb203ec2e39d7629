#include "spec/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace permafrost::spec {
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

TEST(PolicyTest, AuditsTheLimitAndStrictHaveTheirRanges) {
  const struct {
    const char* why;
    PolicyOptions options;
    const char* field;  // null if accepted
  } kCases[] = {
      {"no audits", {.audit_every = 0}, nullptr},
      {"each step", {.audit_every = 1}, nullptr},
      {"most seldom", {.audit_every = kMaxAuditEvery}, nullptr},
      {"backwards", {.audit_every = -1}, "audit_every"},
      {"more seldom than that", {.audit_every = kMaxAuditEvery + 1}, "audit_every"},
      {"no limit", {.max_executables = 0}, nullptr},
      {"the largest limit", {.max_executables = kMaxExecutables}, nullptr},
      {"a negative limit", {.max_executables = -1}, "max_executables"},
      {"a larger limit", {.max_executables = kMaxExecutables + 1}, "max_executables"},
      {"strict under freeze", {.strict = true}, nullptr},
      {"strict under always: once a command freezes it", {.policy = Policy::kAlways, .strict = true}, nullptr},
      {"strict about nothing", {.policy = Policy::kNever, .strict = true}, "strict"},
      {"strict about what is dropped", {.policy = Policy::kClearPerStep, .strict = true}, "strict"},
  };
  for (const auto& c : kCases) {
    Violations violations;
    Validate(c.options, "", violations);
    EXPECT_EQ(violations.empty(), c.field == nullptr) << c.why;
    if (c.field != nullptr) {
      EXPECT_EQ(GetViolations(violations.ToStatus()).at(0).field, c.field) << c.why;
    }
  }
}

}  // namespace
}  // namespace permafrost::spec
