// Tests `permafrost cache plan` against a scripted server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "client/fake_server.h"
#include "client/plan_view.h"
#include "client/program.h"
#include "temp_dir.h"

namespace permafrost::client {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Returns the server's answer for ten epochs of 100 batches.
v1::PlanGraphCacheResponse SamplePlan(bool costs) {
  v1::PlanGraphCacheResponse plan;
  plan.mutable_policy()->set_policy(v1::GraphCachePolicy::POLICY_FREEZE);
  plan.mutable_policy()->set_shapes(v1::GraphCachePolicy::SHAPES_AUTO);
  v1::BatchSchedule& schedule = *plan.add_schedules();
  schedule.set_batching("random");
  schedule.set_epochs(10);
  schedule.set_batches(1000);
  schedule.set_first_epoch_shapes(97);
  schedule.set_shapes(640);
  schedule.mutable_ceiling()->set_nodes(850);
  schedule.mutable_ceiling()->set_edges(1900);
  const auto add = [&](v1::GraphCachePolicy::Policy policy, v1::GraphCachePolicy::Shapes shapes, int64_t executables,
                       int64_t replayed, int64_t padding, int64_t padded = 0) {
    v1::GraphCachePlanRow& row = *plan.add_rows();
    row.mutable_policy()->set_policy(policy);
    row.mutable_policy()->set_shapes(shapes);
    row.set_shapes(shapes == v1::GraphCachePolicy::SHAPES_AUTO ? v1::GraphCachePolicy::SHAPES_DYNAMIC : shapes);
    row.mutable_policy()->set_on_miss(v1::GraphCachePolicy::ON_MISS_PAD);
    row.set_train_executables(executables);
    row.set_eval_executables(1);
    row.set_captures(executables);
    row.set_replayed_steps(replayed);
    row.set_padded_steps(padded);
    row.set_rows(2'000'000);
    row.set_padding_rows(padding);
    if (!costs) return;
    row.set_bytes(5'400'000);
    row.set_step_seconds(0.00209);
    row.set_train_seconds(2.5);
  };
  add(v1::GraphCachePolicy::POLICY_FREEZE, v1::GraphCachePolicy::SHAPES_AUTO, 1, 1000, 1000);
  add(v1::GraphCachePolicy::POLICY_ALWAYS, v1::GraphCachePolicy::SHAPES_EXACT, 640, 360, 1000);
  add(v1::GraphCachePolicy::POLICY_NEVER, v1::GraphCachePolicy::SHAPES_EXACT, 0, 0, 1000);
  add(v1::GraphCachePolicy::POLICY_FREEZE, v1::GraphCachePolicy::SHAPES_EXACT, 51, 950, 12'000, 402);
  add(v1::GraphCachePolicy::POLICY_FREEZE, v1::GraphCachePolicy::SHAPES_LADDER, 8, 1000, 30'000, 980);
  add(v1::GraphCachePolicy::POLICY_FREEZE, v1::GraphCachePolicy::SHAPES_DYNAMIC, 1, 1000, 1000);
  plan.set_recommended_row(0);
  plan.set_recommendation("freeze with one executable for every shape");
  plan.set_freeze_at(50);
  if (costs) {
    plan.mutable_costs()->set_capture_seconds(0.0312);
    plan.mutable_costs()->set_entry_bytes(40'000);
    plan.mutable_costs()->set_shared_bytes(5'000'000);
  } else {
    plan.set_no_costs_reason("the device is not idle");
  }
  return plan;
}

TEST(PlanViewTest, ATableARowAPolicy) {
  EXPECT_EQ(RenderPlan(SamplePlan(/*costs=*/true), "zinc, batches of 32", {}),
            R"(  plan          zinc, batches of 32
  batches       random: 1,000 batches in 10 epochs, 640 different shapes (97 in the first epoch); largest 850 nodes, 1,900 edges
                1,000 batches share 640 shapes (nodes, edges, graphs): an executable for each shape would be 640 of training, not 1,000
  freeze point  after 50 shapes, where shapes are exact
  costs         a capture takes 31.2 ms; an executable keeps 40.0 kB, all share 5.00 MB

             POLICY             SHAPES       EXECUTABLES  CAPTURES  EXACT HITS  PADDED HITS  ROWS ADDED    CACHE  MS/STEP  TRAINING
asked, best  freeze             dynamic            1 + 1         1       100 %        0.0 %       0.1 %  5.40 MB     2.09    2.50 s
             always             exact            640 + 1       640      36.0 %        0.0 %       0.1 %  5.40 MB     2.09    2.50 s
             never              -                  0 + 1         0       0.0 %        0.0 %       0.1 %  5.40 MB     2.09    2.50 s
             freeze at 50, pad  exact             51 + 1        51      54.8 %       40.2 %       0.6 %  5.40 MB     2.09    2.50 s
             freeze             ladder of 8        8 + 1         8       2.0 %       98.0 %       1.5 %  5.40 MB     2.09    2.50 s

  best  freeze with one executable for every shape
)");
}

TEST(PlanViewTest, OfSampledBlocksItTellsRungsAndOfABudgetItsBounds) {
  v1::BatchSchedule schedule;
  schedule.set_batching("sampled");
  schedule.set_estimated(true);
  schedule.set_epochs(2);
  schedule.set_batches(74);
  schedule.set_shapes(6);
  schedule.set_rungs(9);
  schedule.set_sampled_batches(34);
  schedule.set_sampled_shapes(33);
  schedule.mutable_ceiling()->set_nodes(850);
  schedule.mutable_ceiling()->set_edges(1900);
  EXPECT_EQ(BatchScheduleText(schedule),
            "sampled: 74 batches in 2 epochs, rounded up to 9 rungs (34 sampled ones have 33 different shapes); "
            "largest 850 nodes, 1,900 edges");
  v1::BatchSchedule budget = SamplePlan(/*costs=*/false).schedules(0);
  budget.set_batching("budget");
  budget.set_max_nodes(800);
  budget.set_max_edges(1700);
  EXPECT_THAT(BatchScheduleText(budget), StartsWith("budget: at most 800 nodes, at most 1,700 edges, 1,000 batches"));
  v1::PlanGraphCacheResponse plan = SamplePlan(/*costs=*/false);
  *plan.mutable_schedules(0) = schedule;
  EXPECT_THAT(RenderPlan(plan, "cora", {}), Not(HasSubstr("batches share")));
}

TEST(PlanViewTest, WithoutCostsNoneAreShown) {
  const std::string text = RenderPlan(SamplePlan(/*costs=*/false), "zinc", {});
  EXPECT_THAT(text, HasSubstr("costs         not measured: the device is not idle"));
  EXPECT_THAT(text, Not(HasSubstr("MS/STEP")));
}

TEST(PlanViewTest, WhatNoDeviceHasIsNotCalledDynamic) {
  v1::PlanGraphCacheResponse plan = SamplePlan(/*costs=*/false);
  plan.set_no_dynamic_reason("mps records no steps");
  plan.mutable_rows(0)->set_train_executables(8);
  plan.mutable_rows(0)->set_shapes(v1::GraphCachePolicy::SHAPES_LADDER);
  const std::string text = RenderPlan(plan, "zinc", {});
  EXPECT_THAT(text, HasSubstr("dynamic       none: mps records no steps"));
  EXPECT_THAT(text, HasSubstr("asked, best  freeze             ladder of 8"));
}

TEST(PlanViewTest, TheDrawingHasABarForEachRow) {
  for (const bool costs : {false, true}) {
    const std::string svg = DrawPlan(SamplePlan(costs), "a <b> & c");
    EXPECT_THAT(svg, StartsWith("<svg "));
    EXPECT_THAT(svg, HasSubstr("a &lt;b&gt; &amp; c"));
    EXPECT_THAT(svg, HasSubstr("freeze at 50, pad, exact"));
    EXPECT_THAT(svg, HasSubstr(costs ? "2.50 s, 5.40 MB" : "1.5 %"));
  }
}

class PlanCommandTest : public testing::Test {
 protected:
  ProgramResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", fake_.address(), "cache", "plan"});
    return RunProgram(arguments);
  }
  void Start() {
    fake_.plans.cache = [this](const v1::PlanGraphCacheRequest& request, v1::PlanGraphCacheResponse& response) {
      requests_.Add(request);
      response = SamplePlan(!request.without_costs());
      return grpc::Status::OK;
    };
    fake_.Start();
  }

  const TempDir dir_;
  Recorder<v1::PlanGraphCacheRequest> requests_;
  FakeServer fake_;
};

TEST_F(PlanCommandTest, TakesTheFlagsOfAJob) {
  Start();
  const ProgramResult result =
      Run({"--dataset", "zinc", "--batch-size", "32", "--epochs", "10", "--hidden", "128", "--shapes", "auto"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("  plan          zinc, batches of 32\n"));
  const v1::JobSpec spec = requests_.seen().at(0).spec();
  EXPECT_EQ(spec.dataset(), "datasets/zinc");
  EXPECT_EQ(spec.model().hidden_channels(), 128);
  EXPECT_EQ(spec.graph_cache().shapes(), v1::GraphCachePolicy::SHAPES_AUTO);
  EXPECT_FALSE(requests_.seen().at(0).without_costs());
}

TEST_F(PlanCommandTest, WritesJsonAndADrawing) {
  Start();
  const std::filesystem::path svg = dir_.path() / "plan.svg";
  const ProgramResult result = Run({"--dataset", "zinc", "--without-costs", "--svg", svg.string(), "--output", "json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(json::parse(result.out)["rows"].size(), 6u);
  EXPECT_TRUE(requests_.seen().at(0).without_costs());
  std::ifstream file(svg);
  const std::string drawn{std::istreambuf_iterator<char>(file), {}};
  EXPECT_THAT(drawn, StartsWith("<svg "));
}

TEST_F(PlanCommandTest, AFileThatCannotBeWrittenIsOneLine) {
  Start();
  const ProgramResult result = Run({"--dataset", "zinc", "--svg", (dir_.path() / "none" / "plan.svg").string()});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("plan.svg"));
}

TEST_F(PlanCommandTest, NoAnswerIsToldWithTheTimeThatItHad) {
  fake_.plans.cache = [](const v1::PlanGraphCacheRequest&, v1::PlanGraphCacheResponse&) {
    return grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded");
  };
  fake_.Start();
  EXPECT_THAT(Run({"--dataset", "zinc"}).err, HasSubstr(" within 2m 00s (wait longer with --timeout SECONDS)"));
  EXPECT_THAT(Run({"--dataset", "zinc", "--timeout", "300"}).err, HasSubstr(" within 5m 00s "));
}

TEST_F(PlanCommandTest, NeedsADataset) {
  Start();
  const ProgramResult result = Run({});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_THAT(result.err, HasSubstr("--dataset is missing"));
}

}  // namespace
}  // namespace permafrost::client
