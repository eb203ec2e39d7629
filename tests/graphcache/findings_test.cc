#include "graphcache/findings.h"

#include <gtest/gtest.h>

#include <set>

namespace permafrost::graphcache {
namespace {

TEST(CauseTest, OfSeveralCausesTheOneThatMatters) {
  const struct {
    const char* why;
    Missed missed;
    Cause want;
  } kCases[] = {
      {"no executable of so many nodes", {}, Cause::kNewNodes},
      {"nor of so many edges", {.edges_held = true}, Cause::kNewNodes},
      {"so many nodes with other edges", {.nodes_held = true}, Cause::kNewEdges},
      {"both, in other shapes", {.nodes_held = true, .edges_held = true}, Cause::kNewShape},
      {"an epoch's last batch is small whatever is held", {.partial = true, .nodes_held = true}, Cause::kLastBatch},
      {"evaluation has shapes of its own", {.mode = Mode::kEval, .nodes_held = true}, Cause::kEvaluation},
      {"evaluation's last batch", {.mode = Mode::kEval, .partial = true}, Cause::kEvaluation},
      {"the first step of a dynamic mode", {.dynamic = true}, Cause::kFirstStep},
      {"so of evaluation", {.mode = Mode::kEval, .dynamic = true}, Cause::kFirstStep},
      {"what a command dropped", {.dropped = true, .partial = true}, Cause::kPolicyChange},
      {"a dynamic one that a command dropped", {.dropped = true, .dynamic = true}, Cause::kPolicyChange},
      {"at the limit no shape is captured", {.full = true, .partial = true}, Cause::kLimit},
      {"a policy that keeps nothing misses every step", {.keeps_nothing = true, .partial = true}, Cause::kPolicy},
      {"a broken step misses whatever the policy", {.graph_break = true, .keeps_nothing = true}, Cause::kGraphBreak},
  };
  for (const auto& c : kCases) EXPECT_EQ(FindCause(c.missed), c.want) << c.why;
}

TEST(CauseTest, EveryCauseHasItsRowAndCount) {
  std::set<std::string_view> names;
  CauseCounts counts;
  for (const auto& [cause, name] : kCauseNames.rows) {
    names.insert(name);
    EXPECT_EQ(counts.of(cause)++, 0) << name;
  }
  EXPECT_EQ(names.size(), kCauses);
  EXPECT_EQ(counts.Sum(), static_cast<int64_t>(kCauses));
}

}  // namespace
}  // namespace permafrost::graphcache
