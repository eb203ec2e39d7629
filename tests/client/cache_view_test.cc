#include "client/cache_view.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "client/sample_caches.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace permafrost::client {
namespace {

using testing::HasSubstr;
using testing::Not;
using Policy = v1::GraphCachePolicy;

// Four minutes after the sample cache froze.
const ViewTime kViewTime{absl::FromUnixSeconds(1'773'144'247), absl::UTCTimeZone()};

TEST(CacheView, TellsTheWholeStory) {
  EXPECT_EQ(RenderCache(FrozenCache(), kViewTime, {}),
            "graph cache of job zinc-1\n"
            "  policy         freeze after 97 training shapes (derived from the dataset), on a miss: pad\n"
            "  state          frozen since step 106, 2026-03-10 12:00:07 (4m ago); no step compiled anything since\n"
            "  shapes         exact: one executable a shape\n"
            "  memory         14.2 MB: 130 executables, 10.8 MB of it shared\n"
            "  schedule       2,830 distinct training shapes\n"
            "  train ceiling  892 nodes, 1,931 edges, 33 graphs\n"
            "  eval ceiling   868 nodes, 1,879 edges, 33 graphs\n"
            "  graph breaks   none\n"
            "\n"
            "                              TRAIN              EVAL\n"
            "steps                        31,300             3,200\n"
            "  replayed at their shape     2,758   8.8 %       403  12.6 %\n"
            "  replayed padded            28,445  90.9 %     2,765  86.4 %\n"
            "  compiled and kept              97   0.3 %        32   1.0 %\n"
            "  eager                           0   0.0 %         0   0.0 %\n"
            "  transient                       0   0.0 %         0   0.0 %\n"
            "rows added by padding         0.3 %             0.7 %\n"
            "executables                98 of 98          32 of 32\n"
            "  memory of their own       2.94 MB            416 kB\n"
            "compilations                     98                32\n"
            "  while frozen                    0                 0\n"
            "  time                       0.49 s            0.08 s\n");
}

TEST(CacheView, CeilingsOfOneLargeGraphCountSeeds) {
  v1::GraphCache cache = FrozenCache();
  cache.set_of_seeds(true);
  const std::string text = RenderCache(cache, kViewTime, {});
  EXPECT_THAT(text, HasSubstr("  train ceiling  892 nodes, 1,931 edges, 33 seeds\n"));
  EXPECT_THAT(text, HasSubstr("  eval ceiling   868 nodes, 1,879 edges, 33 seeds\n"));
}

TEST(CacheView, OneExecutableForEveryShapeIsTold) {
  const std::string text = RenderCache(DynamicCache(), kViewTime, {});
  EXPECT_THAT(text, HasSubstr("  policy         freeze before the first step, on a miss: pad\n"));
  EXPECT_THAT(text, HasSubstr("  state          frozen since step 0, 2026-03-10 12:00:07 (4m ago); no step compiled "
                              "anything since\n"));
  EXPECT_THAT(text,
              HasSubstr("  shapes         dynamic: one executable for training and one for evaluation serve every "
                        "shape\n"));
  EXPECT_THAT(text, HasSubstr("  memory         10.9 MB: 2 executables, 10.8 MB of it shared\n"));
  EXPECT_THAT(text, HasSubstr("  replayed at their shape   31,300  100 %    3,200  100 %\n"));
  EXPECT_THAT(text, Not(HasSubstr("arena")));
  v1::GraphCache cache = DynamicCache();
  cache.mutable_statistics(0)->set_oversize_steps(3);
  cache.mutable_statistics(1)->set_dynamic(false);
  const std::string mixed = RenderCache(cache, kViewTime, {});
  EXPECT_THAT(mixed, HasSubstr("dynamic in training, exact in evaluation\n"));
  EXPECT_THAT(mixed, HasSubstr("  too large for the arena        3  <0.1 %        0  0.0 %\n"));
  cache.set_frozen(false);
  EXPECT_THAT(RenderCache(cache, kViewTime, {}), HasSubstr("open: freezes before the next step\n"));
}

TEST(CacheView, ALadderTellsItsRungs) {
  v1::GraphCache cache = DynamicCache();
  cache.mutable_policy()->set_shapes(Policy::SHAPES_LADDER);
  cache.mutable_policy()->set_rungs(8);
  for (v1::GraphCacheStatistics& s : *cache.mutable_statistics()) {
    s.set_dynamic(false);
    s.set_rungs(8);
  }
  cache.mutable_statistics(1)->set_rungs(5);
  const std::string text = RenderCache(cache, kViewTime, {});
  EXPECT_THAT(text,
              HasSubstr("  policy         freeze before the first step, on a miss: pad, shapes: ladder of 8 rungs\n"));
  EXPECT_THAT(text, HasSubstr("a ladder of 8 in training, a ladder of 5 in evaluation\n"));
  cache.set_frozen(false);
  EXPECT_THAT(RenderCache(cache, kViewTime, {}), HasSubstr("open: freezes before the next step\n"));
  cache.add_graph_breaks()->set_why("an integer differs");
  EXPECT_THAT(RenderCache(cache, kViewTime, {}),
              HasSubstr("see below; batches of that mode are rounded up to a ladder\n"));
}

TEST(CacheView, BeforeTheFirstStepThereIsNoTable) {
  EXPECT_EQ(RenderCache(NewCache(), kViewTime, {}),
            "graph cache of job zinc-1\n"
            "  policy  freeze after a number of training shapes derived from the dataset, on a miss: pad\n"
            "  state   open: where it freezes is known from the first step on\n");
}

TEST(CacheView, TheStateSaysWhatComesNextOrWhyNothingDoes) {
  using Edit = std::function<void(v1::GraphCache&)>;
  const auto policy = [](Policy::Policy value) {
    return [value](v1::GraphCache& c) { c.mutable_policy()->set_policy(value); };
  };
  const struct {
    const char* why;
    v1::GraphCache cache;
    Edit edit;
    const char* want;
  } kCases[] = {
      {"on the way", WarmingCache(), [](auto&) {}, "freezes after 97 training shapes: 41 kept so far"},
      {"a given freeze point, no step yet", NewCache(), [](auto& c) { c.mutable_policy()->set_freeze_at(1); },
       "freezes after 1 training shape: 0 kept so far"},
      {"a no-op", WarmingCache(),
       [](auto& c) {
         c.set_freeze_at(0);
         c.set_no_op_reason("all graphs of the train split have equally many nodes");
       },
       "never freezes: all graphs of the train split have equally many nodes"},
      {"thawed", WarmingCache(), [](auto& c) { c.set_armed(false); },
       "thawed: every new shape is kept, and it does not freeze by itself"},
      {"always", WarmingCache(), policy(Policy::POLICY_ALWAYS), "open: every new shape is kept"},
      {"never", WarmingCache(), policy(Policy::POLICY_NEVER), "keeps nothing: every step runs eager"},
      {"clear-per-step", WarmingCache(), policy(Policy::POLICY_CLEAR_PER_STEP),
       "keeps nothing: each step is captured, replayed and dropped"},
      {"frozen by a command under always", FrozenCache(), policy(Policy::POLICY_ALWAYS),
       "frozen since step 106, 2026-03-10 12:00:07 (4m ago); no step compiled anything since"},
      {"what a frozen cache compiled is not hushed up", FrozenCache(),
       [](auto& c) {
         c.mutable_statistics(0)->set_frozen_captures(1'200);
         c.mutable_statistics(1)->set_frozen_captures(34);
       },
       "frozen since step 106, 2026-03-10 12:00:07 (4m ago); 1,234 steps compiled something since"},
      {"frozen, resumed", FrozenCache(), [](auto& c) { c.mutable_statistics(0)->set_recaptures(98); },
       "frozen since step 106, 2026-03-10 12:00:07 (4m ago); no step compiled a new shape since, 98 again after a "
       "resume"},
  };
  for (const auto& c : kCases) {
    v1::GraphCache cache = c.cache;
    c.edit(cache);
    const std::string text = RenderCache(cache, kViewTime, {});
    const size_t at = text.find("  state ");
    ASSERT_NE(at, std::string::npos) << c.why;
    EXPECT_THAT(text.substr(at, text.find('\n', at) - at), testing::EndsWith(absl::StrCat(" ", c.want))) << c.why;
  }
}

TEST(CacheView, GraphBreaksNameTheOperatorAndTheReason) {
  v1::GraphCache cache = WarmingCache();
  v1::GraphBreak& known = *cache.add_graph_breaks();
  known.set_mode(v1::GRAPH_CACHE_MODE_TRAIN);
  known.set_op("aten::_local_scalar_dense");
  known.set_why("a value is read back\nto the host");
  known.set_count(2);
  v1::GraphBreak& unknown = *cache.add_graph_breaks();
  unknown.set_mode(v1::GRAPH_CACHE_MODE_EVAL);
  unknown.set_why("a tensor differs between two captures");
  unknown.set_count(1);
  EXPECT_THAT(RenderCache(cache, kViewTime, {}),
              HasSubstr("  graph breaks   2, see below; each shape of that mode is captured for itself\n"));
  cache.mutable_statistics(0)->set_eager_steps(1);
  const std::string text = RenderCache(cache, kViewTime, {});
  EXPECT_THAT(text, HasSubstr("  graph breaks   2, see below; steps of that mode run eager\n"));
  EXPECT_THAT(text,
              testing::EndsWith("\n"
                                "GRAPH BREAK                MODE   TIMES  WHY\n"
                                "aten::_local_scalar_dense  train      2  a value is read back to the host\n"
                                "-                          eval       1  a tensor differs between two captures\n"));
}

TEST(CacheView, ResumesAreToldWhereThereWereAny) {
  EXPECT_THAT(RenderCache(FrozenCache(), kViewTime, {}), Not(HasSubstr("resume")));
  v1::GraphCache cache = FrozenCache();
  cache.mutable_statistics(0)->set_recaptures(98);
  EXPECT_THAT(RenderCache(cache, kViewTime, {}), HasSubstr("  again after a resume           98                 0\n"));
}

TEST(CacheView, AServersTextCannotMoveTheCursor) {
  v1::GraphCache cache = WarmingCache();
  cache.set_name("jobs/a\x1b[2J/graphCache");
  cache.set_freeze_at(0);
  cache.set_no_op_reason("\x1b[2J");
  cache.add_graph_breaks()->set_why("\x1b[2J");
  EXPECT_EQ(RenderCache(cache, kViewTime, {}).find('\x1b'), std::string::npos);
}

TEST(CacheView, Policies) {
  const struct {
    const char* why;
    const char* want;
    int64_t freeze_at;
    int64_t derived;
    Policy::Policy policy;
    Policy::OnMiss on_miss;
  } kCases[] = {
      {"given", "freeze after 50 training shapes, on a miss: eager", 50, 50, Policy::POLICY_FREEZE,
       Policy::ON_MISS_EAGER},
      {"derived and known", "freeze after 97 training shapes (derived from the dataset), on a miss: reject", 0, 97,
       Policy::POLICY_FREEZE, Policy::ON_MISS_REJECT},
      {"derived, not known yet",
       "freeze after a number of training shapes derived from the dataset, on a miss: transient", 0, 0,
       Policy::POLICY_FREEZE, Policy::ON_MISS_TRANSIENT},
      {"only a command freezes it", "always, on a miss once frozen: pad", 50, 50, Policy::POLICY_ALWAYS,
       Policy::ON_MISS_PAD},
      {"nothing can be missed", "never", 0, 0, Policy::POLICY_NEVER, Policy::ON_MISS_PAD},
      {"nothing can be missed", "clear-per-step", 0, 0, Policy::POLICY_CLEAR_PER_STEP, Policy::ON_MISS_PAD},
  };
  for (const auto& c : kCases) {
    Policy policy;
    policy.set_policy(c.policy);
    policy.set_freeze_at(c.freeze_at);
    policy.set_on_miss(c.on_miss);
    EXPECT_EQ(PolicyText(policy, c.derived), c.want) << c.why;
  }
  Policy exact;
  exact.set_policy(Policy::POLICY_FREEZE);
  exact.set_freeze_at(9);
  exact.set_on_miss(Policy::ON_MISS_PAD);
  exact.set_shapes(Policy::SHAPES_EXACT);
  EXPECT_EQ(PolicyText(exact, 9), "freeze after 9 training shapes, on a miss: pad, shapes: exact");
  exact.set_shapes(Policy::SHAPES_AUTO);
  EXPECT_EQ(PolicyText(exact, 9), "freeze before the first step, on a miss: pad");
  exact.set_shapes(Policy::SHAPES_LADDER);
  EXPECT_EQ(PolicyText(exact, 9), "freeze before the first step, on a miss: pad, shapes: ladder");
  exact.set_rungs(1);
  EXPECT_EQ(PolicyText(exact, 9), "freeze before the first step, on a miss: pad, shapes: ladder of 1 rung");
}

TEST(CacheView, Entries) {
  EXPECT_EQ(RenderCacheEntries(SampleEntries(), kViewTime, {}),
            "MODE   SHAPES  NODES  EDGES  GRAPHS   MEMORY  EXACT  PADDED  COMPILED IN  A REPLAY  AT STEP  LAST USED\n"
            "train  one       757  1,630      33  29.8 kB     31   1,204       5.1 ms   3.24 ms        0     7s ago\n"
            "eval   every     868  1,879      33  13.0 kB      0       0       2.4 ms         -      106          -\n");
}

TEST(CacheProgress, ShowsTheWayToTheFreezePointThenWhatTheCacheServes) {
  v1::GraphCache thawed = WarmingCache();
  thawed.set_armed(false);
  v1::GraphCache always = WarmingCache();
  always.mutable_policy()->set_policy(Policy::POLICY_ALWAYS);
  v1::GraphCache no_op = WarmingCache();
  no_op.set_freeze_at(0);
  no_op.set_no_op_reason("all graphs of the train split have equally many nodes");
  const struct {
    const char* why;
    v1::GraphCache cache;
    int width;
    const char* want;
  } kCases[] = {
      {"a bar to the freeze point", WarmingCache(), 100,
       "41 of 97 shapes  ##########--------------   42%  2.4 % exact  0.0 % padded  41 executables  10.3 MB"},
      {"narrow", WarmingCache(), 60, "41 of 97 shapes  #########-------------   42%  0.0 % padded"},
      {"nothing has run", NewCache(), 60, "waits for the first step  0 steps  0 executables  0 B"},
      {"a no-op", no_op, 60, "never freezes  42 steps  2.4 % exact  0.0 % padded  10.3 MB"},
      {"frozen", FrozenCache(), 160,
       "frozen at step 106  34,500 steps  9.2 % exact  90.5 % padded  130 executables  14.2 MB  0 compiled while "
       "frozen"},
      {"frozen, narrow", FrozenCache(), 60, "frozen at step 106  34,500 steps  90.5 % padded"},
      {"thawed", thawed, 60, "thawed  42 steps  2.4 % exact  0.0 % padded  10.3 MB"},
      {"always", always, 60, "always  42 steps  2.4 % exact  0.0 % padded  10.3 MB"},
  };
  for (const auto& c : kCases) {
    EXPECT_EQ(RenderCacheProgress(ToSnapshot(c.cache), {.width = c.width}), c.want) << c.why;
  }
}

TEST(CacheProgress, NeverWrapsATerminal) {
  for (const v1::GraphCache& cache : {NewCache(), WarmingCache(), FrozenCache()}) {
    for (int width = 1; width <= 160; ++width) {
      const std::string line = RenderCacheProgress(ToSnapshot(cache), {.width = width});
      EXPECT_LE(line.size(), static_cast<size_t>(std::max(1, width - 1))) << line;
    }
  }
}

}  // namespace
}  // namespace permafrost::client
