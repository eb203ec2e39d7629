#include "api/wire/convert_graph_cache.h"
#include "api/wire/wire_fields.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

namespace permafrost::api {
namespace {

using spec::OnMiss;
using spec::Policy;
using spec::Shapes;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;

template <class Message>
Message Parsed(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message)) << text;
  return message;
}

TEST(GraphCacheToWire, CarriesEveryField) {
  graphcache::Snapshot snapshot;
  snapshot.options = {.policy = Policy::kFreeze,
                      .freeze_at = 1,
                      .on_miss = OnMiss::kTransient,
                      .shapes = Shapes::kDynamic,
                      .rungs = 37,
                      .audit_every = 36,
                      .strict = true,
                      .max_executables = 37};
  snapshot.freeze_point = {.freeze_at = 2,
                           .source = graphcache::FreezeSource::kSchedule,
                           .effective_size = 3,
                           .no_formula_reason = "equal nodes"};
  snapshot.frozen = true;
  snapshot.armed = true;
  snapshot.freeze_step = 4;
  snapshot.freeze_time = absl::FromUnixMillis(5500);
  snapshot.of(Mode::kTrain) = {.entries = 6,
                               .entry_bytes = 7,
                               .capacity = -1,
                               .hits = 8,
                               .padded_hits = 9,
                               .misses = 10,
                               .captures = 11,
                               .recaptures = 12,
                               .frozen_captures = 13,
                               .rejected_inserts = 14,
                               .graph_breaks = 15,
                               .eager_steps = 16,
                               .transient_steps = 17,
                               .capture_seconds = 18,
                               .awaiting_recapture = 5,
                               .graphs = 19,
                               .nodes = 20,
                               .edges = 21,
                               .padding_graphs = 22,
                               .padding_nodes = 23,
                               .padding_edges = 24};
  snapshot.of(Mode::kTrain).dynamic = true;
  snapshot.of(Mode::kTrain).oversize_steps = 35;
  snapshot.of(Mode::kTrain).cut_executables = 46;
  snapshot.planned_rungs = 45;
  snapshot.of(Mode::kTrain).audits = 38;
  snapshot.of(Mode::kTrain).audit_failures = 39;
  snapshot.of(Mode::kTrain).captures_by_cause.of(graphcache::Cause::kNewEdges) = 40;
  snapshot.of(Mode::kEval).captures_by_cause.of(graphcache::Cause::kResume) = 41;
  snapshot.of(Mode::kEval).misses_by_cause.of(graphcache::Cause::kPolicyChange) = 42;
  snapshot.audit_failures = {{Mode::kEval, {1, 2, 3}, 43, "aten::y", "bits \xFF", 44}};
  snapshot.of(Mode::kTrain).rungs = 36;
  snapshot.of(Mode::kEval).entry_bytes = 1000;
  snapshot.shared_bytes = 30'000;
  snapshot.train_ceiling = {.nodes = 25, .edges = 26, .graphs = 27};
  snapshot.eval_ceiling = {.nodes = 28, .edges = 29, .graphs = 30};
  snapshot.planned_train_shapes = 31;
  snapshot.of_seeds = true;
  snapshot.graph_breaks = {{Mode::kEval, "aten::x", "why \xFF", 32}};
  snapshot.command_sequence = 33;
  snapshot.command_step = 34;
  const auto want = Parsed<v1::GraphCache>(R"pb(
    name: "jobs/a/graphCache"
    policy {
      policy: POLICY_FREEZE
      freeze_at: 1
      on_miss: ON_MISS_TRANSIENT
      shapes: SHAPES_DYNAMIC
      rungs: 37
      audit_every: 36
      strict: true
      max_executables: 37
    }
    freeze_at: 2
    freeze_point_source: FREEZE_POINT_SOURCE_SCHEDULE
    frozen: true
    armed: true
    freeze_step: 4
    freeze_time { seconds: 5 nanos: 500000000 }
    statistics {
      mode: GRAPH_CACHE_MODE_TRAIN
      entries: 6
      entry_bytes: 7
      capacity: -1
      hits: 8
      padded_hits: 9
      misses: 10
      captures: 11
      recaptures: 12
      frozen_captures: 13
      rejected_inserts: 14
      graph_breaks: 15
      eager_steps: 16
      transient_steps: 17
      capture_seconds: 18
      graphs: 19
      nodes: 20
      edges: 21
      padding_graphs: 22
      padding_nodes: 23
      padding_edges: 24
      awaiting_recapture: 5
      dynamic: true
      oversize_steps: 35
      cut_executables: 46
      audits: 38
      audit_failures: 39
      rungs: 36
    }
    statistics { mode: GRAPH_CACHE_MODE_EVAL entry_bytes: 1000 }
    shared_bytes: 30000
    total_bytes: 31007
    train_ceiling { nodes: 25 edges: 26 graphs: 27 }
    eval_ceiling { nodes: 28 edges: 29 graphs: 30 }
    planned_train_shapes: 31
    planned_rungs: 45
    of_seeds: true
    graph_breaks { mode: GRAPH_CACHE_MODE_EVAL op: "aten::x" why: "why \357\277\275" count: 32 }
    command_step: 34
    audit_failures {
      mode: GRAPH_CACHE_MODE_EVAL
      shape { nodes: 1 edges: 2 graphs: 3 }
      step: 43
      op: "aten::y"
      why: "bits \357\277\275"
      count: 44
    }
    captures_by_cause { mode: GRAPH_CACHE_MODE_TRAIN cause: GRAPH_CACHE_CAUSE_NEW_EDGES count: 40 }
    captures_by_cause { mode: GRAPH_CACHE_MODE_EVAL cause: GRAPH_CACHE_CAUSE_RESUME count: 41 }
    misses_by_cause { mode: GRAPH_CACHE_MODE_EVAL cause: GRAPH_CACHE_CAUSE_POLICY_CHANGE count: 42 }
  )pb");
  EXPECT_EQ(GraphCacheToWire(JobId("a"), snapshot).DebugString(), want.DebugString());
}

TEST(GraphCacheToWire, EveryCauseHasAValueOfItsOwn) {
  graphcache::Snapshot snapshot;
  for (const auto& [cause, name] : graphcache::kCauseNames.rows)
    snapshot.of(Mode::kTrain).misses_by_cause.of(cause) = 1;
  const v1::GraphCache cache = GraphCacheToWire(JobId("a"), snapshot);
  std::set<int> causes;
  for (const v1::CauseCount& count : cache.misses_by_cause()) causes.insert(count.cause());
  EXPECT_EQ(causes.size(), graphcache::kCauses);
  EXPECT_FALSE(causes.contains(v1::GRAPH_CACHE_CAUSE_UNSPECIFIED));
}

TEST(ExplanationToWire, CarriesTheCacheAndEachProfile) {
  graphcache::Snapshot snapshot;
  snapshot.frozen = true;
  snapshot.profiles.Set({.mode = Mode::kTrain,
                         .shape = {1, 2, 3},
                         .step = 4,
                         .replay_seconds = 0.5,
                         .eager_seconds = 0.75,
                         .product_seconds = 0.375,
                         .operators = {{"aten::mm", 2, 0.25}, {"permafrost::gine_layer", 1, 0.125}}});
  const auto want = Parsed<v1::StepProfile>(R"pb(
    mode: GRAPH_CACHE_MODE_TRAIN
    shape { nodes: 1 edges: 2 graphs: 3 }
    step: 4
    replay_seconds: 0.5
    eager_seconds: 0.75
    operators { op: "aten::mm" calls: 2 seconds: 0.25 product: true }
    operators { op: "permafrost::gine_layer" calls: 1 seconds: 0.125 }
    product_seconds: 0.375
  )pb");
  const v1::ExplainGraphCacheResponse got = ExplanationToWire(JobId("a"), snapshot);
  EXPECT_TRUE(got.cache().frozen());
  ASSERT_EQ(got.profiles_size(), 1);
  EXPECT_EQ(got.profiles(0).DebugString(), want.DebugString());
}

TEST(GraphCacheToWire, SaysWhyThereIsNoFreezePoint) {
  graphcache::Snapshot snapshot;
  snapshot.freeze_point = {.no_formula_reason = "bad \xFF byte"};
  const v1::GraphCache cache = GraphCacheToWire(JobId("a"), snapshot);
  EXPECT_EQ(cache.freeze_point_source(), v1::FREEZE_POINT_SOURCE_NONE);
  EXPECT_EQ(cache.no_op_reason(), "bad \357\277\275 byte");
}

TEST(GraphCacheToWire, LeavesOutWhatIsNotKnownBeforeTheFirstStep) {
  const v1::GraphCache cache = GraphCacheToWire(JobId("a"), {});
  EXPECT_FALSE(cache.has_freeze_time());
  EXPECT_FALSE(cache.has_train_ceiling());
  EXPECT_FALSE(cache.has_eval_ceiling());
  EXPECT_TRUE(cache.policy().has_freeze_at()) << "0 is told: derived";
  EXPECT_EQ(cache.statistics_size(), 2);
}

TEST(GraphCacheEntryToWire, CarriesEveryField) {
  graphcache::EntryInfo entry{.mode = Mode::kTrain,
                              .shape = {.nodes = 1, .edges = 2, .graphs = 3},
                              .bytes = 4,
                              .hits = 5,
                              .padded_hits = 6,
                              .replays = 4,
                              .replay_seconds = 10,
                              .capture_seconds = 7,
                              .created_step = 8,
                              .last_use = absl::FromUnixSeconds(9),
                              .dynamic = true,
                              .withdrawn = true};
  const auto want = Parsed<v1::GraphCacheEntry>(R"pb(
    mode: GRAPH_CACHE_MODE_TRAIN
    shape { nodes: 1 edges: 2 graphs: 3 }
    bytes: 4
    hits: 5
    padded_hits: 6
    capture_seconds: 7
    created_step: 8
    last_use_time { seconds: 9 }
    dynamic: true
    withdrawn: true
    replay_seconds: 2.5
  )pb");
  EXPECT_EQ(GraphCacheEntryToWire(entry).DebugString(), want.DebugString());
  entry.last_use = absl::InfinitePast();
  EXPECT_FALSE(GraphCacheEntryToWire(entry).has_last_use_time()) << "not used yet";
  entry.replays = 0;
  EXPECT_EQ(GraphCacheEntryToWire(entry).replay_seconds(), 0);
}

spec::PolicyOptions PolicyFromWire(const v1::GraphCachePolicy& wire, const spec::PolicyOptions& defaults,
                                   Violations& violations) {
  spec::PolicyOptions options = defaults;
  WireReader(wire, "", violations).Read(options);
  return WithPolicyDefaults(wire, defaults, options);
}

TEST(PolicyFromWire, AServersStrictIsNotThatOfAPolicyThatKeepsNothing) {
  const spec::PolicyOptions defaults{.strict = true};
  const struct {
    const char* wire;
    bool strict;
  } kCases[] = {{"", true},
                {"policy: POLICY_ALWAYS", true},
                {"strict: false", false},
                {"policy: POLICY_NEVER", false},
                {"policy: POLICY_NEVER strict: true", true}};  // Validate refuses this combination
  for (const auto& c : kCases) {
    Violations violations;
    const auto wire = Parsed<v1::GraphCachePolicy>(c.wire);
    EXPECT_EQ(PolicyFromWire(wire, defaults, violations).strict, c.strict) << c.wire;
  }
  Violations violations;
  EXPECT_FALSE(PolicyFromWire({}, {.policy = Policy::kNever, .strict = true}, violations).strict);
}

TEST(PolicyUpdateFromWire, TakesOnlyWhatIsGiven) {
  const struct {
    const char* why;
    const char* wire;
    graphcache::PolicyUpdate want;
  } kCases[] = {
      {"no field: graphcache::Check says what is missing", "policy {}", {}},
      {"the policy", "policy { policy: POLICY_NEVER }", {.policy = Policy::kNever}},
      {"derived is a value of its own", "policy { freeze_at: 0 }", {.freeze_at = 0}},
      {"out of range is not ours to judge", "policy { freeze_at: -5 }", {.freeze_at = -5}},
      {"on_miss", "policy { on_miss: ON_MISS_REJECT }", {.on_miss = OnMiss::kReject}},
      {"shapes", "policy { shapes: SHAPES_EXACT }", {.shapes = Shapes::kExact}},
      {"no audits", "policy { audit_every: 0 }", {.audit_every = 0}},
      {"strict no more", "policy { strict: false }", {.strict = false}},
      {"no limit", "policy { max_executables: 0 }", {.max_executables = 0}},
      {"rungs", "policy { shapes: SHAPES_LADDER rungs: 4 }", {.shapes = Shapes::kLadder, .rungs = 4}},
      {"the default is a value of its own", "policy { rungs: 0 }", {.rungs = 0}},
      {"everything",
       "policy { policy: POLICY_FREEZE freeze_at: 9 on_miss: ON_MISS_EAGER shapes: SHAPES_AUTO }",
       {.policy = Policy::kFreeze, .freeze_at = 9, .on_miss = OnMiss::kEager, .shapes = Shapes::kAuto}},
  };
  for (const auto& c : kCases) {
    Violations violations;
    EXPECT_EQ(PolicyUpdateFromWire(Parsed<v1::UpdateGraphCachePolicyRequest>(c.wire), violations), c.want) << c.why;
    EXPECT_TRUE(violations.empty()) << c.why;
  }
}

TEST(PolicyUpdateFromWire, NamesWhatIsMissingOrUnknown) {
  v1::UpdateGraphCachePolicyRequest request;
  Violations missing;
  PolicyUpdateFromWire(request, missing);
  EXPECT_THAT(GetViolations(missing.ToStatus()), ElementsAre(Field(&FieldViolation::field, "policy")));
  request.mutable_policy()->set_policy(static_cast<v1::GraphCachePolicy::Policy>(9));
  request.mutable_policy()->set_on_miss(static_cast<v1::GraphCachePolicy::OnMiss>(8));
  request.mutable_policy()->set_shapes(static_cast<v1::GraphCachePolicy::Shapes>(7));
  Violations unknown;
  PolicyUpdateFromWire(request, unknown);
  EXPECT_THAT(
      GetViolations(unknown.ToStatus()),
      ElementsAre(AllOf(Field(&FieldViolation::field, "policy.policy"),
                        Field(&FieldViolation::description, HasSubstr("9 is unknown; accepted: POLICY_ALWAYS"))),
                  Field(&FieldViolation::field, "policy.on_miss"), Field(&FieldViolation::field, "policy.shapes")));
}

}  // namespace
}  // namespace permafrost::api
