#include "jobs/run_context.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace permafrost::jobs {
namespace {

using graphcache::Command;
using graphcache::CommandKind;
using testing::ElementsAre;
using testing::IsEmpty;

Command Clear(int64_t sequence, std::optional<int64_t> step = std::nullopt) {
  return {.sequence = sequence, .kind = CommandKind::kClear, .step = step};
}

TEST(CommandLogTest, ACommandIsDueAtItsStepOrLater) {
  const CommandLog log({}, {Clear(1, 5), Clear(2, 5), Clear(3, 9)});
  EXPECT_EQ(log.newest(), 3);
  EXPECT_THAT(log.Due(0, 4), IsEmpty());
  EXPECT_THAT(log.Due(0, 5), ElementsAre(Clear(1, 5), Clear(2, 5)));
  EXPECT_THAT(log.Due(1, 8), ElementsAre(Clear(2, 5)));
  EXPECT_THAT(log.Due(2, 8), IsEmpty());
  EXPECT_THAT(log.Due(2, 12), ElementsAre(Clear(3, 9)));
  EXPECT_THAT(log.Due(3, 12), IsEmpty());
}

TEST(CommandLogTest, OneWithoutAStepIsDueUnlessALaterOneIsAheadOfIt) {
  CommandLog log({}, {Clear(1, 9)});
  log.Append(Clear(2), nullptr);
  EXPECT_EQ(log.newest(), 2);
  EXPECT_THAT(log.Due(0, 8), IsEmpty()) << "a run that repeats lost steps must repeat the command at 9 first";
  EXPECT_THAT(log.Due(0, 9), ElementsAre(Clear(1, 9), Clear(2)));
  EXPECT_THAT(log.Due(1, 9), ElementsAre(Clear(2)));
}

TEST(CommandLogTest, AStampStays) {
  CommandLog log({}, {Clear(1, 3)});
  log.Append(Clear(2), nullptr);
  log.Append(Clear(3), nullptr);
  log.Stamp({Clear(2, 7)});
  EXPECT_THAT(log.Due(0, 7), ElementsAre(Clear(1, 3), Clear(2, 7), Clear(3)));
  EXPECT_THAT(log.Unstamped(), ElementsAre(Clear(3)));
  EXPECT_EQ(log.state().last_step, 7);
}

TEST(CommandLogTest, WhoWaitsIsGivenBackOnceAndInOrder) {
  CommandLog log({}, {});
  EXPECT_EQ(log.newest(), 0);
  std::vector<int> called;
  for (int i = 1; i <= 3; ++i) {
    EXPECT_TRUE(
        log.Append(Clear(i), [&called, i](const absl::StatusOr<graphcache::Snapshot>&) { called.push_back(i); }));
  }
  EXPECT_THAT(log.TakeWaiting(0), IsEmpty());
  for (const auto& done : log.TakeWaiting(2)) done(graphcache::Snapshot());
  EXPECT_THAT(called, ElementsAre(1, 2));
  EXPECT_THAT(log.TakeWaiting(2), IsEmpty());
  EXPECT_EQ(log.Close().size(), 1u);
  EXPECT_FALSE(log.Append(Clear(4), nullptr));
  EXPECT_THAT(log.Close(), IsEmpty());
  EXPECT_EQ(log.state().newest, 4) << "for the next run";
  log.Open();
  EXPECT_TRUE(log.Append(Clear(5), nullptr));
}

TEST(CommandLogTest, OptionsFollowEachUpdateInOrder) {
  using spec::OnMiss;
  using spec::Policy;
  const spec::PolicyOptions spec{.policy = Policy::kAlways, .freeze_at = 3};
  CommandLog log(spec, {{.sequence = 1, .kind = CommandKind::kUpdatePolicy, .update = {.policy = Policy::kNever}}});
  EXPECT_EQ(CommandLog(spec, {}).state().options, spec);
  EXPECT_EQ(log.state().options.policy, Policy::kNever) << "those of the store";
  log.Append(Clear(2), nullptr);
  log.Append({.sequence = 3, .kind = CommandKind::kUpdatePolicy, .update = {.on_miss = OnMiss::kEager}}, nullptr);
  log.Append({.sequence = 4, .kind = CommandKind::kUpdatePolicy, .update = {.policy = Policy::kFreeze}}, nullptr);
  EXPECT_EQ(log.state().options,
            (spec::PolicyOptions{.policy = Policy::kFreeze, .freeze_at = 3, .on_miss = OnMiss::kEager}));
}

}  // namespace
}  // namespace permafrost::jobs
