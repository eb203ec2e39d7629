#include "graphcache/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/status.h"

namespace permafrost::graphcache {
namespace {

Command Of(CommandKind kind, PolicyUpdate update = {}) { return {.kind = kind, .update = update}; }

TEST(CommandTest, AnUpdateChangesOnlyWhatItHolds) {
  const spec::PolicyOptions before{.policy = spec::Policy::kAlways, .freeze_at = 7, .on_miss = spec::OnMiss::kEager};
  EXPECT_EQ(Updated(before, {}), before);
  EXPECT_EQ(Updated(before, {.policy = spec::Policy::kFreeze}),
            (spec::PolicyOptions{.policy = spec::Policy::kFreeze, .freeze_at = 7, .on_miss = spec::OnMiss::kEager}));
  // 0 is a value of its own: derive the freeze point again.
  EXPECT_EQ(Updated(before, {.freeze_at = 0, .on_miss = spec::OnMiss::kPad}),
            (spec::PolicyOptions{.policy = spec::Policy::kAlways, .freeze_at = 0, .on_miss = spec::OnMiss::kPad}));
  const spec::PolicyOptions watched = Updated(before, {.audit_every = 0, .strict = true, .max_executables = 5});
  EXPECT_EQ(watched.audit_every, 0);
  EXPECT_TRUE(watched.strict);
  EXPECT_EQ(watched.max_executables, 5);
}

TEST(CommandTest, FreezeAndThawNeedAPolicyThatKeeps) {
  for (const auto& [policy, name] : spec::kPolicyNames.rows) {
    const bool keeps = policy == spec::Policy::kAlways || policy == spec::Policy::kFreeze;
    for (const CommandKind kind : {CommandKind::kFreeze, CommandKind::kThaw}) {
      const absl::Status status = Check(Of(kind), {.policy = policy});
      EXPECT_EQ(status.ok(), keeps) << name;
      if (keeps) continue;
      EXPECT_TRUE(absl::IsFailedPrecondition(status)) << name;
      EXPECT_EQ(GetReason(status).reason, "GRAPH_CACHE_KEEPS_NOTHING") << name;
    }
    EXPECT_TRUE(Check(Of(CommandKind::kClear), {.policy = policy}).ok()) << name;
    EXPECT_TRUE(Check(Of(CommandKind::kUpdatePolicy, {.on_miss = spec::OnMiss::kPad}), {.policy = policy}).ok())
        << name;
  }
}

TEST(CommandTest, AnUpdateHasFieldsAndTheyAreInRange) {
  const auto fields = [](const PolicyUpdate& update) {
    std::vector<std::string> names;
    for (const FieldViolation& v : GetViolations(Check(Of(CommandKind::kUpdatePolicy, update), {}))) {
      names.push_back(v.field);
    }
    return names;
  };
  EXPECT_THAT(fields({}), testing::ElementsAre("policy"));
  EXPECT_THAT(fields({.freeze_at = -1}), testing::ElementsAre("policy.freeze_at"));
  EXPECT_THAT(fields({.freeze_at = spec::kMaxFreezeAt + 1}), testing::ElementsAre("policy.freeze_at"));
  EXPECT_THAT(fields({.freeze_at = 0}), testing::IsEmpty());
  EXPECT_THAT(fields({.audit_every = -1}), testing::ElementsAre("policy.audit_every"));
  EXPECT_THAT(fields({.max_executables = -1}), testing::ElementsAre("policy.max_executables"));
  EXPECT_THAT(fields({.strict = false}), testing::IsEmpty());
  EXPECT_THAT(GetViolations(Check(Of(CommandKind::kUpdatePolicy, {.policy = spec::Policy::kNever}), {.strict = true})),
              testing::ElementsAre(testing::Field(&FieldViolation::field, "policy.strict")))
      << "the rest of the policy counts";
}

TEST(CommandTest, SurvivesJson) {
  const Command full{
      .sequence = 3,
      .kind = CommandKind::kUpdatePolicy,
      .update = {.policy = spec::Policy::kClearPerStep,
                 .freeze_at = 0,
                 .on_miss = spec::OnMiss::kReject,
                 .audit_every = 0,
                 .strict = false,
                 .max_executables = 3},
      .step = 0,
  };
  EXPECT_EQ(CommandFromJson(ToJson(full)).value(), full);
  // An absent field stays absent, because a step of 0 differs from no step.
  const Command bare{.sequence = 4, .kind = CommandKind::kThaw};
  EXPECT_EQ(CommandFromJson(ToJson(bare)).value(), bare);
  EXPECT_TRUE(absl::IsDataLoss(CommandFromJson(R"({"kind": "melt"})").status()));
}

}  // namespace
}  // namespace permafrost::graphcache
