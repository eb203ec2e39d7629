// Audits of replays by a graph cache.
#include <string>
#include <vector>

#include "base/status.h"
#include "graphcache/cache_fixture.h"
#include "graphcache/findings.h"

namespace permafrost::graphcache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(AuditTest, WhichStepsAreAudited) {
  const struct {
    const char* why;
    Mode mode;
    int64_t every, step, eval_audit_step;
    bool want;
  } kCases[] = {
      {"off", Mode::kTrain, 0, 1000, 0, false},
      {"the first step of all has nothing before it", Mode::kTrain, 1, 0, 0, false},
      {"each", Mode::kTrain, 1, 1, 0, true},
      {"the second, so that each job has one", Mode::kTrain, 1000, 1, 0, true},
      {"the third", Mode::kTrain, 1000, 2, 0, false},
      {"before", Mode::kTrain, 1000, 999, 0, false},
      {"at", Mode::kTrain, 1000, 1000, 0, true},
      {"after", Mode::kTrain, 1000, 1001, 0, false},
      {"again", Mode::kTrain, 1000, 5000, 0, true},
      {"evaluation is off too", Mode::kEval, 0, 1000, 0, false},
      {"evaluation before the first step", Mode::kEval, 1000, 0, 0, false},
      {"the first evaluation of all", Mode::kEval, 1000, 313, 0, true},
      {"the next, before the first thousand", Mode::kEval, 1000, 626, 313, false},
      {"the first evaluation after it", Mode::kEval, 1000, 1252, 313, true},
      {"the rest of that pass", Mode::kEval, 1000, 1252, 1252, false},
      {"a pass before the next", Mode::kEval, 1000, 1999, 1252, false},
      {"the first one after the next", Mode::kEval, 1000, 2001, 1252, true},
  };
  for (const auto& c : kCases) EXPECT_EQ(IsAuditDue(c.mode, c.every, c.step, c.eval_audit_step), c.want) << c.why;
}

TEST(AuditTest, ProductsAreMatrixProductsAlone) {
  EXPECT_TRUE(IsProduct("aten::mm"));
  EXPECT_TRUE(IsProduct("aten::addmm"));
  EXPECT_FALSE(IsProduct("aten::mul"));
  EXPECT_FALSE(IsProduct("permafrost::gine_layer"));
}

TEST(AuditTest, AProfileTakesThePlaceOfThatOfItsMode) {
  StepProfiles profiles;
  profiles.Set({.mode = Mode::kEval, .step = 1});
  profiles.Set({.mode = Mode::kTrain, .step = 2});
  const StepProfiles copy = profiles;
  profiles.Set({.mode = Mode::kEval, .step = 3});
  ASSERT_EQ(profiles.list().size(), 2u);
  EXPECT_EQ(profiles.list()[0].step, 2);
  EXPECT_EQ(profiles.list()[1].step, 3);
  EXPECT_EQ(copy.list()[1].step, 1) << "copies are of their moment";
}

class AuditedCacheTest : public CacheFixture {
 protected:
  static spec::PolicyOptions Every(int64_t steps, spec::Shapes shapes = spec::Shapes::kExact) {
    return {.policy = spec::Policy::kAlways, .shapes = shapes, .audit_every = steps};
  }
  const Difference fault_{"aten::mm", "its result 0 has other bits in the replay"};
};

TEST_F(AuditedCacheTest, TheSecondAndEveryNthTrainingStepThatIsAReplay) {
  Make(Every(2));
  Train(9, 0);
  EXPECT_THAT(Train(9, 1), ElementsAre("pad 9", "audit train 9"));
  EXPECT_THAT(Train(9, 2), ElementsAre("pad 9", "audit train 9"));
  EXPECT_THAT(Train(9, 3), ElementsAre("pad 9", "replay train 9"));
  EXPECT_THAT(Train(7, 4), ElementsAre("capture train 7", "pad 7", "audit train 7")) << "the step's own capture too";
  EXPECT_EQ(Stats().audits, 3);
  EXPECT_EQ(Stats().audit_failures, 0);
  EXPECT_EQ(Stats().hits, 3);
  EXPECT_EQ(Stats().misses, 2);
  EXPECT_THAT(errors_, IsEmpty());
  const StepProfile want{Mode::kTrain, Padded(7), 4, 1, 2, 3, {{"aten::mm", 2, 0.5}}, {}};
  EXPECT_THAT(cache_->snapshot().profiles.list(), ElementsAre(want));
}

TEST_F(AuditedCacheTest, TheFirstEvaluationStepAfterEachNthTrainingStep) {
  Make(Every(10));
  EXPECT_THAT(Eval(9, 9), ElementsAre("capture eval 9", "pad 9", "audit eval 9")) << "the first of all";
  EXPECT_THAT(Eval(9, 9), ElementsAre("pad 9", "replay eval 9"));
  EXPECT_THAT(Eval(9, 13), ElementsAre("pad 9", "audit eval 9"));
  EXPECT_THAT(Eval(9, 13), ElementsAre("pad 9", "replay eval 9"));
  EXPECT_THAT(Eval(9, 20), ElementsAre("pad 9", "audit eval 9"));
  EXPECT_EQ(Stats(Mode::kEval).audits, 3);
}

TEST_F(AuditedCacheTest, TransientStepsToo) {
  Make({.policy = spec::Policy::kClearPerStep, .audit_every = 1});
  EXPECT_THAT(Train(9, 1), ElementsAre("capture train 9", "pad 9", "audit train 9", "drop train 9"));
  EXPECT_EQ(Stats().audits, 1);
}

TEST_F(AuditedCacheTest, EagerStepsAndDevicesThatRecordNothingHaveNothingToAudit) {
  Make({.policy = spec::Policy::kNever, .audit_every = 1});
  EXPECT_THAT(Train(9, 1), ElementsAre("pad 9", "eager train 9"));
  compiler_.records = false;
  Make(Every(1));
  Train(9, 0);
  EXPECT_THAT(Train(9, 1), ElementsAre("pad 9", "replay train 9"));
  EXPECT_EQ(Stats().audits, 0);
}

TEST_F(AuditedCacheTest, ADifferenceWithdrawsTheExecutableAndNoOther) {
  Make(Every(4));
  Train(9, 0);
  Train(7, 1);
  const int64_t bytes = Stats().entry_bytes;
  compiler_.faults[Mode::kTrain] = fault_;
  EXPECT_THAT(Train(9, 4), ElementsAre("pad 9", "audit train 9", "drop train 9"));
  compiler_.faults.clear();
  EXPECT_EQ(Stats().audit_failures, 1);
  EXPECT_EQ(Stats().entries, 2) << "it decides on the shape of its steps as before";
  EXPECT_EQ(Stats().entry_bytes, bytes - FakeCompiler::kBytes);
  EXPECT_TRUE(cache_->entries()[0].withdrawn);
  EXPECT_THAT(errors_,
              ElementsAre("audit: after step 4 the replay of a training step of (9 nodes, 18 edges, 5 graphs) is not "
                          "what the step does when it is run eagerly: aten::mm: its result 0 has other bits in the "
                          "replay; the eager result is kept, and the executable is not used any more"));
  EXPECT_THAT(Train(9, 5), ElementsAre("pad 9", "eager train 9"));
  EXPECT_EQ(Stats().misses_by_cause.of(Cause::kAudit), 1);
  EXPECT_THAT(Train(7, 6), ElementsAre("pad 7", "replay train 7"));
  // The executable stays withdrawn after a resume, and a clear brings it back.
  const Snapshot snapshot = cache_->snapshot();
  const std::vector<EntryInfo> entries = cache_->entries();
  Make(Every(4));
  cache_->Restore(snapshot, entries);
  EXPECT_EQ(Stats().awaiting_recapture, 1);
  EXPECT_THAT(Train(9, 7), ElementsAre("pad 9", "eager train 9"));
  Apply(CommandKind::kClear, 8);
  EXPECT_THAT(Train(9, 9), ElementsAre("capture train 9", "pad 9", "replay train 9"));
}

TEST_F(AuditedCacheTest, ADynamicExecutableIsWithdrawnForEveryShape) {
  compiler_.no_dynamic_reason.clear();
  Make(Every(2, spec::Shapes::kDynamic));
  Train(9, 0);
  compiler_.faults[Mode::kTrain] = fault_;
  Train(7, 2);
  compiler_.faults.clear();
  EXPECT_THAT(Train(7, 4), ElementsAre("pad 7", "eager train 7"));
  EXPECT_THAT(Train(8, 5), ElementsAre("pad 8", "eager train 8"));
  EXPECT_EQ(Stats().captures, 1);
}

TEST_F(AuditedCacheTest, EqualDifferencesAreCountedTogether) {
  Make(Every(1));
  compiler_.faults[Mode::kTrain] = fault_;
  for (int64_t nodes = 3; nodes < 6; ++nodes) Train(nodes, nodes);
  compiler_.faults[Mode::kTrain] = {"", "left weight otherwise"};
  Train(9, 9);
  EXPECT_THAT(cache_->snapshot().audit_failures,
              ElementsAre(AuditFailure{Mode::kTrain, Padded(3), 3, fault_.op, fault_.why, 3},
                          AuditFailure{Mode::kTrain, Padded(9), 9, "", "left weight otherwise", 1}));
}

TEST_F(AuditedCacheTest, AStrictJobFailsAtADifference) {
  spec::PolicyOptions options = Every(2);
  options.strict = true;
  Make(options);
  Train(9, 0);
  compiler_.faults[Mode::kTrain] = fault_;
  const absl::Status status = TryRun(Mode::kTrain, 9, 2).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("aten::mm: its result 0 has other bits"));
  const ErrorReason reason = GetReason(status);
  EXPECT_EQ(reason.reason, "GRAPH_CACHE_AUDIT_FAILED");
  EXPECT_EQ(reason.metadata.at("op"), "aten::mm");
  EXPECT_EQ(reason.metadata.at("step"), "2");
  EXPECT_EQ(Stats().audit_failures, 1);
}

}  // namespace
}  // namespace permafrost::graphcache
