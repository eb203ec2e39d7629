#include "client/explain_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "client/cache_view.h"
#include "client/sample_caches.h"

namespace permafrost::client {
namespace {

using testing::HasSubstr;
using testing::Not;

const ViewTime kExplainTime{absl::FromUnixSeconds(1'773'144'247), absl::UTCTimeZone()};

TEST(ExplainView, TellsBreaksAuditsCausesAndTheStepByOperator) {
  EXPECT_EQ(RenderExplanation(Explanation(), {}),
            "graph cache of job zinc-1\n"
            "  graph breaks  none\n"
            "  audits        33, all equal to the bit, every 1,000 steps\n"
            "\n"
            "CAUSE       MODE   CAPTURES  MISSES\n"
            "first-step  train         1       1\n"
            "resume      train         2       0\n"
            "freeze      eval          1       0\n"
            "\n"
            "the training step audited last, after step 31,000: 757 nodes, 1,630 edges, 33 graphs\n"
            "OPERATOR                   CALLS      TIME    SHARE\n"
            "permafrost::gine_layer         4  1.000 ms   50.0 %\n"
            "aten::mm                       6  0.400 ms   20.0 %  product\n"
            "aten::addmm                    1  0.100 ms    5.0 %  product\n"
            "between operators                 0.500 ms   25.0 %\n"
            "the replay                        2.000 ms  100.0 %\n"
            "its matrix products alone         1.000 ms   50.0 %\n"
            "the step run eagerly              3.000 ms  150.0 %\n"
            "\n"
            " FORWARD  BACKWARD   SHARE  LINE OF THE MODULE\n"
            "0.100 ms  0.200 ms  15.0 %  net.py:12 in forward: h = conv(h)\n"
            "0.040 ms         -   2.0 %  net.py:9 in forward: degree = count(edge_index)\n"
            "\n"
            "operators named permafrost:: hold the matrix products of their layer; alone they were run by aten::mm on "
            "tensors of the same sizes, and a layer may multiply faster\n");
}

TEST(ExplainView, ShapesOfOneLargeGraphCountSeeds) {
  v1::ExplainGraphCacheResponse explanation = Explanation();
  explanation.mutable_cache()->set_of_seeds(true);
  v1::AuditFailure& failure = *explanation.mutable_cache()->add_audit_failures();
  failure.mutable_shape()->set_graphs(1);
  const std::string shown = RenderExplanation(explanation, {});
  EXPECT_THAT(shown, HasSubstr("after step 31,000: 757 nodes, 1,630 edges, 33 seeds\n"));
  EXPECT_THAT(shown, HasSubstr("0 nodes, 0 edges, 1 seed\n"));
  EXPECT_THAT(shown, Not(HasSubstr("graphs")));
}

TEST(ExplainView, WithoutAnAuditThereIsNoProfile) {
  v1::ExplainGraphCacheResponse explanation;
  *explanation.mutable_cache() = WarmingCache();
  EXPECT_EQ(RenderExplanation(explanation, {}),
            "graph cache of job zinc-1\n"
            "  graph breaks  none\n"
            "  audits        none yet, off\n"
            "\n"
            "no step was audited yet, so that no operator was timed\n");
}

TEST(ExplainView, AFailedAuditIsShownWithItsOperator) {
  v1::GraphCache cache = Explanation().cache();
  cache.mutable_statistics(0)->set_audit_failures(2);
  v1::AuditFailure& failure = *cache.add_audit_failures();
  failure.set_mode(v1::GRAPH_CACHE_MODE_TRAIN);
  *failure.mutable_shape() = Explanation().profiles(0).shape();
  failure.set_step(2'000);
  failure.set_op("aten::mm");
  failure.set_why("its result 0 has other bits\nin the replay");
  failure.set_count(2);
  const std::string want =
      "FAILED AUDIT  MODE   TIMES  AFTER STEP  SHAPE                              WHY\n"
      "aten::mm      train      2       2,000  757 nodes, 1,630 edges, 33 graphs  its result 0 has other bits in the "
      "replay\n";
  EXPECT_EQ(RenderAuditFailures(cache, {}), want);
  EXPECT_EQ(AuditsCell(cache).text, "2 of 33 found a difference, see below");
  EXPECT_EQ(AuditsCell(cache).tone, Tone::kBad);
  const std::string shown = RenderCache(cache, kExplainTime, {});
  EXPECT_THAT(shown, HasSubstr("  audits         2 of 33 found a difference, see below\n"));
  EXPECT_THAT(shown, HasSubstr(want));
  EXPECT_THAT(shown, HasSubstr("\nCAUSE       MODE   CAPTURES  MISSES\n"));
}

TEST(ExplainView, ACacheSaysThatItIsStrict) {
  v1::GraphCache cache = DynamicCache();
  EXPECT_THAT(RenderCache(cache, kExplainTime, {}), Not(HasSubstr("strict")));
  cache.mutable_policy()->set_strict(true);
  EXPECT_THAT(RenderCache(cache, kExplainTime, {}),
              HasSubstr("\n  strict         a graph break or a failed audit fails"));
  EXPECT_THAT(PolicyText(cache.policy()), testing::EndsWith(", strict"));
}

TEST(ExplainView, LinesBeyondTheTwentiethShareARow) {
  v1::ExplainGraphCacheResponse explanation = Explanation();
  v1::StepProfile& profile = *explanation.mutable_profiles(0);
  while (profile.lines_size() < 22) *profile.add_lines() = profile.lines(0);
  EXPECT_THAT(RenderExplanation(explanation, {}), testing::HasSubstr(" 30.0 %  other lines\n"));
}

}  // namespace
}  // namespace permafrost::client
