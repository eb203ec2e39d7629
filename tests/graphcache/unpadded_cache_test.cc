// A cache of steps that read the sizes of a batch from its shape, so that nothing may be padded.
#include "graphcache/cache_fixture.h"

namespace permafrost::graphcache {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class UnpaddedCacheTest : public CacheFixture {
 protected:
  UnpaddedCacheTest() {
    compiler_.no_dynamic_reason.clear();
    auto_shapes_ = spec::Shapes::kAuto;
    pads_ = false;
    plan_.train_schedule = {{Padded(50), 3}, {Padded(90), 2}};
    plan_.eval_schedule = {{Padded(20), 1}, {Padded(40), 1}};
  }
};

TEST_F(UnpaddedCacheTest, ADynamicExecutableServesBatchesAsTheyAre) {
  Make({});
  EXPECT_THAT(Train(50), ElementsAre("capture every train", "capture every eval", "pad 50", "replay every train 50"));
  EXPECT_THAT(Eval(31, 1), ElementsAre("pad 31", "replay every eval 31"));
}

TEST_F(UnpaddedCacheTest, ABatchThatADynamicExecutableWouldPadRunsEager) {
  Make({});
  Train(50);
  FakeBatch one_edge(compiler_, {.nodes = 4, .edges = 1, .graphs = 2});
  ASSERT_TRUE(cache_->Run(Mode::kTrain, one_edge, 1).ok());
  EXPECT_THAT(compiler_.Take(), ElementsAre("pad 5", "eager train 5"));
  EXPECT_EQ(Stats().misses, 1);
  EXPECT_EQ(Stats().padding_edges, 0);
}

TEST_F(UnpaddedCacheTest, AStepThatResistsIsCapturedForItsOwnShapesAndForNoRung) {
  compiler_.resisting = {Mode::kTrain, Mode::kEval};
  Make({.freeze_at = 2});
  EXPECT_THAT(Train(50), ElementsAre("resist train", "resist eval", "capture train 50", "pad 50", "replay train 50"));
  EXPECT_THAT(Train(60, 1), ElementsAre("capture train 60", "pad 60", "replay train 60"));
  EXPECT_TRUE(cache_->snapshot().frozen);
  EXPECT_THAT(Held(), ElementsAre("train 50", "train 60"));
  EXPECT_THAT(Train(40, 2), ElementsAre("pad 40", "eager train 40")) << "60 would hold it";
  EXPECT_THAT(Eval(20, 3), ElementsAre("pad 20", "eager eval 20"));
}

TEST_F(UnpaddedCacheTest, ALadderIsNotMadeAndAMissIsNotPadded) {
  Make({.policy = spec::Policy::kFreeze, .shapes = spec::Shapes::kLadder});
  EXPECT_EQ(cache_->options().shapes, spec::Shapes::kExact);
  EXPECT_EQ(cache_->options().on_miss, spec::OnMiss::kEager);
  EXPECT_THAT(cache_->ladder(Mode::kTrain), IsEmpty());
  Apply(CommandKind::kUpdatePolicy, 0, {.on_miss = spec::OnMiss::kPad, .shapes = spec::Shapes::kLadder});
  EXPECT_EQ(cache_->options().shapes, spec::Shapes::kExact) << "by a command, too";
  EXPECT_EQ(cache_->options().on_miss, spec::OnMiss::kEager);
}

TEST_F(UnpaddedCacheTest, AFullCacheDoesNotPadIntoWhatItHolds) {
  compiler_.resisting = {Mode::kTrain, Mode::kEval};
  Make({.policy = spec::Policy::kAlways, .max_executables = 1});
  EXPECT_THAT(Train(60), ElementsAre("capture train 60", "pad 60", "replay train 60"));
  EXPECT_THAT(Train(40, 1), ElementsAre("pad 40", "eager train 40"));
}

TEST_F(UnpaddedCacheTest, AStepThatCannotBeCapturedRunsEagerAtItsOwnShape) {
  compiler_.breaks[Mode::kTrain] = "aten::index";
  Make({});
  EXPECT_THAT(Train(50),
              ElementsAre("resist train", "capture every eval", "break train 50", "pad 50", "eager train 50"));
  EXPECT_THAT(Train(40, 1), ElementsAre("pad 40", "eager train 40"));
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("aten::index")));
}

}  // namespace
}  // namespace permafrost::graphcache
